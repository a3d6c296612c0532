"""Several likelihoods on one network, each for its own block of y."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution, constraints

from tunbridge.core.declared import Module
from tunbridge.core.errors import InputError
from tunbridge.core.types import Key, Likelihood, PyTree, Scalar
from tunbridge.model.likelihoods.base import OfClasses


class MultiTask(Module):
    r"""Several tasks on one network, :math:`\log p(y) = \sum_t \log p_t(y_t \mid f_t(x), \sigma_t)`.

    Each task reads its own outputs of the network and scores its own columns of y. Unknown noise weights the losses:
    with ``Gaussian(dist.Gamma(0.5, 1.0))`` a task has weight :math:`1 / (2 \sigma_t^2)`, learnt from its residuals
    :cite:p:`kendall2018multitask`; ``Categorical(temperature=dist.LogNormal(0.0, 1.0))`` does the same
    for classes.

    Parameters
    ----------
    tasks
        Likelihoods by name, or a sequence of them, in the order of y's columns.
    columns
        Number of columns of y per task; None gives each task one. A classification task has one.
    names
        Names of tasks given as a sequence; None numbers them "0", "1", ...
    outputs
        Number of network outputs per task; None takes it from y when the model is bound to data.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from tunbridge.model.likelihoods import Bernoulli, Gaussian
    >>> both = MultiTask({"length": Gaussian(0.1), "kind": Bernoulli()}).bind(jnp.array([[1.5, 1.0], [0.5, 0.0]]))
    >>> both.distribution(jnp.zeros((2, 2))).log_prob(jnp.zeros((2, 2))).shape
    (2,)
    """

    tasks: tuple[Likelihood, ...]
    columns: tuple[int, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    outputs: tuple[int, ...] | None = eqx.field(static=True)

    def __init__(
        self,
        tasks: Mapping[str, Likelihood] | Sequence[Likelihood],
        columns: Sequence[int] | None = None,
        names: Sequence[str] | None = None,
        outputs: Sequence[int] | None = None,
    ):
        if isinstance(tasks, Mapping):
            names, tasks = tuple(tasks), tuple(tasks.values())
        self.tasks = tuple(tasks)
        self.columns = (1,) * len(self.tasks) if columns is None else tuple(columns)
        self.names = tuple(map(str, range(len(self.tasks)))) if names is None else tuple(names)
        self.outputs = None if outputs is None else tuple(outputs)
        self._check()

    def _check(self) -> None:
        for task in self.tasks:
            if isinstance(task, MultiTask):
                raise InputError("tasks without tasks of their own", "a MultiTask", "Put all tasks in one MultiTask.")
        num = {len(self.tasks), len(self.columns), len(set(self.names))}
        if num != {len(self.tasks)} or not self.tasks or min(self.columns) < 1:
            raise InputError(
                "tasks with distinct names, and a number of columns of y for each",
                f"{len(self.tasks)} tasks, names {self.names}, columns {self.columns}",
                "Give one number per task, or leave columns= out.",
            )
        for task, name, width in zip(self.tasks, self.names, self.columns, strict=True):
            if isinstance(task, OfClasses) and width != 1:
                raise InputError(f"one column of labels for {name!r}", f"{width}", "Make each column a task.")

    def blocks(self, y: Any) -> list[Any]:
        """Split y (..., columns) into the columns of each task; class labels lose the last axis."""
        ends = np.cumsum(self.columns)
        parts = [y[..., end - width : end] for end, width in zip(ends, self.columns, strict=True)]
        return [
            part[..., 0] if isinstance(task, OfClasses) else part for task, part in zip(self.tasks, parts, strict=True)
        ]

    def scored(self, y: Array) -> list[Array]:
        """The columns of y of each task, with class labels as integers."""
        pairs = zip(self.tasks, self.blocks(y), strict=True)
        return [block.astype(jnp.int32) if isinstance(task, OfClasses) else block for task, block in pairs]

    def parts(self, outputs: Array, noise: PyTree = ()) -> Iterator[tuple[Likelihood, Array, PyTree]]:
        """Iterate over tasks, each with its own outputs (..., outputs) and unknowns."""
        if self.outputs is None:
            raise InputError("a MultiTask that is bound to data", "one that is not", "Call bind(y) first.")
        ends = np.cumsum(self.outputs)
        blocks = [outputs[..., end - width : end] for end, width in zip(ends, self.outputs, strict=True)]
        return zip(self.tasks, blocks, noise or ((),) * len(self.tasks), strict=True)

    def check(self, y: Array) -> Array:
        """Return y as a matrix of floats; InputError unless each task accepts its columns."""
        if y.ndim != 2 or y.shape[1] != sum(self.columns):
            raise InputError(
                f"y of shape (points, {sum(self.columns)}) for the tasks {', '.join(self.names)}",
                f"shape {y.shape}",
                "Stack the targets of all tasks as columns, in their order.",
            )
        for task, block in zip(self.tasks, self.blocks(y), strict=True):
            task.check(block)
        return y.astype(jax.dtypes.canonicalize_dtype(float))

    def num_outputs(self, y: Array) -> int:
        """Number of outputs that the network needs: the sum over tasks."""
        return sum(self._outputs(y))

    def _outputs(self, y: Array) -> list[int]:
        return [task.num_outputs(block) for task, block in zip(self.tasks, self.blocks(y), strict=True)]

    def with_outputs(self, num: int) -> "MultiTask":
        """Return self: the number of outputs leaves nothing to settle."""
        return self

    def bind(self, y: Array) -> "MultiTask":
        """Return the same likelihood with each task bound to its columns of y."""
        bound = [task.bind(block) for task, block in zip(self.tasks, self.blocks(y), strict=True)]
        return MultiTask(bound, self.columns, self.names, self._outputs(y))

    def sample_noise(self, key: Key) -> PyTree:
        """Draw each task's unknowns from their priors."""
        keys = jax.random.split(key, len(self.tasks))
        return _or_none(tuple(task.sample_noise(k) for task, k in zip(self.tasks, keys, strict=True)))

    def log_noise(self, noise: PyTree, *, jacobian: bool = True) -> Scalar:
        """Log prior density of all tasks' unknowns."""
        pairs = zip(self.tasks, noise or ((),) * len(self.tasks), strict=True)
        return sum((task.log_noise(unknown, jacobian=jacobian) for task, unknown in pairs), jnp.zeros(()))

    def median_noise(self) -> PyTree:
        """Each task's unknowns at the medians of their priors."""
        return _or_none(tuple(task.median_noise() for task in self.tasks))

    def distribution(self, outputs: Array, noise: PyTree = ()) -> Distribution:
        """Joint distribution of all columns of y, with tasks independent given the network."""
        distributions = tuple(task.distribution(f, unknown) for task, f, unknown in self.parts(outputs, noise))
        return Joint(distributions, self)

    def fisher_root(self, outputs: Array, noise: PyTree = ()) -> Array:
        """Block-diagonal root, one block per task."""
        return _block_diagonal([task.fisher_root(f, unknown) for task, f, unknown in self.parts(outputs, noise)])

    def hessian_root(self, outputs: Array, y: Array, noise: PyTree = ()) -> Array:
        """Block-diagonal root, one block per task."""
        each = zip(self.parts(outputs, noise), self.scored(y), strict=True)
        return _block_diagonal([task.hessian_root(f, block, unknown) for (task, f, unknown), block in each])

    def measured(self, y: Array) -> np.ndarray:
        """Mask (columns,) of the columns of y that have units."""
        return np.concatenate([task.measured(b) for task, b in zip(self.tasks, self.blocks(y), strict=True)])

    def in_units(self, scale: Array) -> "MultiTask":
        """Return the same likelihood for y / scale, with scale (columns,)."""
        ends = np.cumsum(self.columns)
        scales = [scale[end - width : end] for end, width in zip(ends, self.columns, strict=True)]
        tasks = [task.in_units(task_scale) for task, task_scale in zip(self.tasks, scales, strict=True)]
        return MultiTask(tasks, self.columns, self.names, self.outputs)

    def shrunk(self, y: Array, outputs: Array, noise: PyTree, share: float) -> Array:
        """Return y with residuals multiplied by `share` in each task that has residuals."""
        each = zip(self.parts(outputs, noise), self.blocks(y), strict=True)
        return self.joined([task.shrunk(block, f, unknown, share) for (task, f, unknown), block in each])

    def joined(self, blocks: Sequence[Array]) -> Array:
        """Join blocks into one matrix of floats: the inverse of `blocks`."""
        pairs = zip(self.tasks, blocks, strict=True)
        columns = [block[..., None] if isinstance(task, OfClasses) else block for task, block in pairs]
        return jnp.concatenate([part.astype(jnp.result_type(float)) for part in columns], axis=-1)


def _or_none(noise: tuple[PyTree, ...]) -> PyTree:
    return noise if jax.tree.leaves(noise) else ()


def _block_diagonal(blocks: list[Array]) -> Array:
    """Block-diagonal matrices, one per point, from blocks (points, rows, columns)."""
    return jax.vmap(jax.scipy.linalg.block_diag)(*blocks)


class Joint(Distribution):
    """Independent blocks of y, one per task: batch shape (points,), event shape (columns,)."""

    support = constraints.real_vector
    pytree_data_fields = ("parts", "tasks")

    def __init__(self, parts: tuple[Distribution, ...], tasks: MultiTask, *, validate_args: bool | None = None):
        self.parts, self.tasks = parts, tasks
        super().__init__(parts[0].batch_shape, (sum(tasks.columns),), validate_args=validate_args)

    def sample(self, key: Key, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw all columns, with labels as floats."""
        keys = jax.random.split(key, len(self.parts))
        return self.tasks.joined([part.sample(k, sample_shape) for part, k in zip(self.parts, keys, strict=True)])

    def log_prob(self, value: Array) -> Array:
        """Log density of all columns, (points,): the sum over tasks."""
        each = [part.log_prob(block) for part, block in zip(self.parts, self.tasks.scored(value), strict=True)]
        return sum(each[1:], each[0])
