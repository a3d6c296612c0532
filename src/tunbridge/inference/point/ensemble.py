"""Deep ensembles: several fits of one method, and the mixture of their posteriors."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tunbridge.core import keys
from tunbridge.core.declared import Count, checked
from tunbridge.core.errors import InputError
from tunbridge.core.tree import on_host
from tunbridge.core.types import Key, Params
from tunbridge.inference.base import Method
from tunbridge.inference.point.map import MAP
from tunbridge.inference.posteriors import Posterior
from tunbridge.inference.promises import Promises, Spreads
from tunbridge.predict.outputs import Outputs
from tunbridge.predict.parts import Parts
from tunbridge.runtime import programs


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

    promises: ClassVar[Promises] = {
        "linear": ("mean", 0.001),
        "linear_unknown": ("none",),
        "logistic": ("mode", 0.001),
        "tanh_unit": ("mode", 0.001),
    }
    spreads: ClassVar[Spreads] = {"numbers": (0.1, 1.1), "classes": (0.0, 0.0)}

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


class Mixture(Posterior):
    """Several posteriors of one model, equally weighted."""

    members: tuple[Posterior, ...]

    @checked
    @programs.unforked
    def sample(self, key: Key, num: Count) -> Params:
        """Draw `num` parameters, each from a member chosen at random."""
        key_member, *member_keys = jax.random.split(key, 1 + len(self.members))
        chosen = jax.random.randint(key_member, (num,), 0, len(self.members))
        drawn = [member.sample(k, num) for member, k in zip(self.members, member_keys, strict=True)]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves)[chosen, jnp.arange(num)], *drawn)

    def starts(self, key: Key, num: int) -> Params:
        """Return starting points of `num` chains, taken from the members in turn."""
        start_keys = keys.split(key, num)
        starts = [self.members[i % len(self.members)].starts(keys.one(start_keys, i), 1) for i in range(num)]
        return jax.tree.map(lambda *leaves: on_host(_joined, *leaves), *starts)

    def components(self, key: Key, num: int | None) -> Params:
        """Return the components of all members; with `num`, that many in all, equally many per member."""
        each = self._each(num)
        parts = [member.components(k, each) for member, k in zip(self.members, self._keys(key), strict=True)]
        return jax.tree.map(lambda *leaves: on_host(_joined, *leaves), *parts)

    def _keys(self, key: Key) -> list[Key]:
        member_keys = keys.split(key, len(self.members))
        return [keys.one(member_keys, i) for i in range(len(self.members))]

    @property
    def linear(self) -> bool:
        """Whether any member linearises the network."""
        return any(member.linear for member in self.members)

    def pushed(self, x: np.ndarray, key: Key, num: int | None) -> Outputs:
        """Return the outputs at x of all members' networks, linearised for the members that are linear."""
        if not self.linear:
            return super().pushed(x, key, num)
        each = self._each(num)
        return Outputs.join(
            [member.pushed(x, k, each) for member, k in zip(self.members, self._keys(key), strict=True)]
        )

    def prepared(self) -> tuple[Callable[[Any, Array], Parts], Any]:
        """As `Posterior.prepared`; InputError if a member is linear."""
        if self.linear:
            raise InputError("members that are networks", "linearised ones", "Compile one member by itself.")
        return super().prepared()

    def _each(self, num: int | None) -> int | None:
        each, remainder = (None, 0) if num is None else divmod(num, len(self.members))
        if remainder or each == 0:
            raise InputError(f"num as a multiple of the {len(self.members)} members", f"{num}", "Change num.")
        return each


def _joined(*parts: np.ndarray) -> np.ndarray:
    """Arrays concatenated along the first axis."""
    return np.concatenate(parts)
