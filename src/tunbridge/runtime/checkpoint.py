"""Checkpoints: saves are atomic, a resumed run is bitwise equal, and kept draws are streamed to disk.

The order of writes makes a kill harmless at any moment: draws are appended and synced first; then the state is written
to a temporary file, synced, and renamed over the old one. A state records how many draws belong to it and the checksum
of their bytes; whatever a killed process had appended beyond them is cut off on loading.
"""

import os
import zlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tunbridge.core import archive, files
from tunbridge.core.errors import CheckpointError, LoadError
from tunbridge.core.tree import num_bytes
from tunbridge.core.types import PyTree
from tunbridge.runtime.fingerprint import to_host

FORMAT = 2
_COUNTS = ("format", "kept", "record", "checksum")
_BLOCK = 1 << 24
"""Bytes read at a time when a checksum is computed."""


def _from_bytes(data: bytes | np.ndarray, like: Any) -> Any:
    """Inverse of `to_host` followed by `tobytes`: an array with the dtype and shape of `like`."""
    if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
        numbers = jax.eval_shape(jax.random.key_data, like)
        impl = jax.random.key_impl(jnp.empty((), like.dtype))
        return jax.random.wrap_key_data(_from_bytes(data, numbers), impl=impl)
    return jnp.asarray(np.frombuffer(data, like.dtype).reshape(like.shape))


class Checkpoint:
    """The checkpoint folder of one lane of a run. The caller holds the lock of the run's folder (`files.locked`).

    Parameters
    ----------
    folder
        Created if it does not exist.
    identity
        The `fingerprint` of the run; a folder with another fingerprint is refused.
    """

    def __init__(self, folder: str | os.PathLike, identity: str):
        self.folder, self.identity = Path(folder), identity
        self._state, self._draws = self.folder / "state.npz", self.folder / "draws.bin"
        self._kept, self._checksum = 0, 0

    def load(self, state_like: PyTree, facts_like: dict[str, float]) -> tuple[PyTree, dict] | None:
        """Return the (state, facts) saved last, or None if nothing was saved.

        Shapes are those of `state_like`, names those of `facts_like`; CheckpointError if the file does not match.
        """
        files.remove_unfinished(self._state)
        if not self._state.exists():
            return None
        try:
            facts, arrays = archive.read(self._state)
        except LoadError as error:
            raise self._damaged(self._state, str(error)) from error
        self._refuse_another(facts, facts_like)
        like, treedef = jax.tree.flatten(state_like)
        sizes = {str(i): num_bytes(leaf) for i, leaf in enumerate(like)}
        if {name: array.nbytes for name, array in arrays.items()} != sizes:
            raise self._damaged(self._state, "its arrays are not those of this run.")
        state = jax.tree.unflatten(treedef, [_from_bytes(arrays[str(i)], leaf) for i, leaf in enumerate(like)])
        self._kept, self._checksum = facts["kept"], facts["checksum"]
        if self._kept:
            self._check_draws(self._kept * facts["record"])
        return state, facts

    def _refuse_another(self, facts: Any, like: dict[str, float]) -> None:
        kinds: dict[str, Any] = {**dict.fromkeys(_COUNTS, int), **{name: type(value) for name, value in like.items()}}
        known = facts if isinstance(facts, dict) else {}
        if not all(isinstance(known.get(name), kind) and known[name] >= 0 for name, kind in kinds.items()):
            raise self._damaged(self._state, "its metadata is not that of a checkpoint.")
        if facts["format"] > FORMAT:
            raise CheckpointError(f"{self._state} was written by a newer Tunbridge. Upgrade to resume it.")
        if facts["format"] < FORMAT or facts.get("identity") != self.identity:
            raise CheckpointError(
                f"{self.folder} holds another run: the model, method, data, key, number of steps or version of "
                "Tunbridge differ. Resume with the same ones, or name another folder."
            )

    def _check_draws(self, expected: int) -> None:
        """Truncate the file to the bytes that belong to the state, and verify their checksum."""
        size = self._draws.stat().st_size if self._draws.exists() else 0
        if size < expected:
            raise self._damaged(self._draws, f"{size} bytes of {expected}")
        os.truncate(self._draws, expected)
        checksum = 0
        with open(self._draws, "rb") as file:
            while block := file.read(_BLOCK):
                checksum = zlib.crc32(block, checksum)
        self._compare(checksum)

    def _compare(self, checksum: int) -> None:
        if checksum != self._checksum:
            raise self._damaged(self._draws, "its bytes are not those that were written")

    def _damaged(self, path: Path, why: str) -> CheckpointError:
        return CheckpointError(f"{path} is damaged ({why.rstrip('.')}). Delete the folder {self.folder} to start anew.")

    def save(self, state: PyTree, records: np.ndarray, facts: dict) -> None:
        """Append the draws `records` (num, bytes), then replace the state."""
        self.folder.mkdir(parents=True, exist_ok=True)
        record = int(records.shape[1])
        checksum = self._checksum
        if len(records):
            block = np.ascontiguousarray(records).data
            self._append(block, self._kept * record)
            checksum = zlib.crc32(block, checksum)
        kept = self._kept + len(records)
        facts = {**facts, "format": FORMAT, "identity": self.identity}
        facts |= {"kept": kept, "record": record, "checksum": checksum}
        leaves = [np.frombuffer(to_host(leaf).tobytes(), np.uint8) for leaf in jax.tree.leaves(state)]
        archive.write(self._state, facts, {str(i): leaf for i, leaf in enumerate(leaves)})
        self._kept, self._checksum = kept, checksum

    def _append(self, block: memoryview, start: int) -> None:
        """Write a block behind the first `start` bytes, in place of what an interrupted save may have left there."""
        with open(self._draws, "ab") as file:
            if (size := file.tell()) < start:  # truncating would extend it with zeros
                raise self._damaged(self._draws, f"{size} bytes of {start}")
            file.truncate(start)
            file.write(block)
            files.sync(file)

    def draws(self, record: int) -> np.ndarray:
        """All draws on disk, (num, bytes), after verifying their checksum."""
        if not self._kept:
            return np.zeros((0, record), np.uint8)
        records = np.fromfile(self._draws, np.uint8)
        self._compare(zlib.crc32(records.data))
        return records.reshape(self._kept, record)


def pack(kept: PyTree, count: int, like: PyTree) -> np.ndarray:
    """Pack the first `count` entries of each leaf into bytes, one row per entry; `like` is a single entry."""
    rows = np.zeros((count, num_bytes(like)), np.uint8)
    if count and rows.shape[1]:
        leaves = [np.ascontiguousarray(to_host(leaf)[:count]) for leaf in jax.tree.leaves(kept)]
        np.concatenate([leaf.reshape(count, -1).view(np.uint8) for leaf in leaves], axis=1, out=rows)
    return rows


def unpack(records: np.ndarray, like: PyTree) -> PyTree:
    """Inverse of `pack`: a tree with a leading axis of entries."""
    leaves, treedef = jax.tree.flatten(like)
    columns = np.split(records, np.cumsum([num_bytes(leaf) for leaf in leaves])[:-1], axis=1) if leaves else []
    arrays = [
        np.ascontiguousarray(column).view(leaf.dtype).reshape(len(records), *leaf.shape)
        for column, leaf in zip(columns, leaves, strict=True)
    ]
    return jax.tree.unflatten(treedef, arrays)
