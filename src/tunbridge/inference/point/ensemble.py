"""Deep ensembles."""

import dataclasses
from typing import Self

import equinox as eqx

from tunbridge.core import keys
from tunbridge.core.errors import InputError
from tunbridge.inference.base import Method
from tunbridge.inference.point.map import MAP
from tunbridge.inference.posteriors import Mixture, Posterior


class Ensemble(Method):
    r"""Several independent fits of one method, averaged: :math:`p(y) = \frac1M \sum_m p(y \mid \theta_m)`.

    With point estimates it is a deep ensemble :cite:p:`lakshminarayanan2017simple`; with any other method, a mixture
    of its posteriors. Members differ in their starts and in the order of their rows, and run in parallel.

    Parameters
    ----------
    method
        The method of each member.
    size
        Number of members.
    """

    method: Method = eqx.field(default_factory=MAP)
    size: int = 5

    def __check_init__(self):
        if self.size < 1:
            raise InputError("a size of at least 1", f"{self.size}", "Use 5 members, say.")

    def within(self, gradients: int, rows: int) -> Self:
        """Return the ensemble with the budget of gradients shared equally by its members."""
        return dataclasses.replace(self, method=self.method.within(max(gradients // self.size, 1), rows))

    def posteriors(self, model, data, key, size, options):
        """Return `size` ensembles, with all their members fitted in one call of the method."""
        if options.init is not None and size * self.size > 1:
            raise InputError(
                "members that start apart", "one init= for all of them", "Leave init= out, or fit them one by one."
            )
        split_keys = keys.split(key)
        members = self.method.posteriors(model, data, keys.one(split_keys, 0), size * self.size, options)
        groups = [tuple(members[i * self.size : (i + 1) * self.size]) for i in range(size)]
        split_keys = keys.split(keys.one(split_keys, 1), size)
        return [
            Mixture(group[0].model, keys.one(split_keys, i), group, notes=_notes(group))
            for i, group in enumerate(groups)
        ]


def _notes(members: tuple[Posterior, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(note for member in members for note in member.notes))
