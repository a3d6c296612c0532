"""Checkpoints: an atomic save, a resume equal to the bit, kept draws streamed to disk.

The order is what makes a kill harmless at any moment: draws are appended and synced first; then the state goes
to a temporary file, is synced and renamed over the old one. A state names how many draws belong to it; whatever
a killed process had appended beyond that is cut off on loading.
"""

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tunbridge.core.errors import CheckpointError
from tunbridge.core.tree import num_bytes
from tunbridge.core.types import PyTree
from tunbridge.runtime.fingerprint import to_host

FORMAT = 1


def _from_bytes(data: bytes | np.ndarray, like: Any) -> Any:
    """The inverse of `to_host` and `tobytes`, in the dtype and shape of `like`."""
    if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
        numbers = jax.eval_shape(jax.random.key_data, like)
        impl = jax.random.key_impl(jnp.empty((), like.dtype))
        return jax.random.wrap_key_data(_from_bytes(data, numbers), impl=impl)
    return jnp.asarray(np.frombuffer(data, like.dtype).reshape(like.shape))


class Checkpoint:
    """The folder of one lane of one run.

    Parameters
    ----------
    folder
        Made if it is not there.
    identity
        The `fingerprint` of the run: a folder that holds another is refused.
    """

    def __init__(self, folder: str | os.PathLike, identity: str):
        self.folder, self.identity = Path(folder), identity
        self._state, self._draws = self.folder / "state.npz", self.folder / "draws.bin"
        self._kept = 0

    def load(self, state_like: PyTree) -> tuple[PyTree, dict] | None:
        """(state, facts) of the last save, or None where there is none."""
        if not self._state.exists():
            return None
        try:
            file = np.load(io.BytesIO(self._state.read_bytes()), allow_pickle=False)
            facts = json.loads(file["facts"].tobytes())
            self._refuse_another(facts)
            leaves = [file[f"leaf{i}"].tobytes() for i in range(len(jax.tree.leaves(state_like)))]
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise self._damaged(self._state, str(error)) from error
        like, treedef = jax.tree.flatten(state_like)
        state = jax.tree.unflatten(treedef, [_from_bytes(*pair) for pair in zip(leaves, like, strict=True)])
        self._kept = facts["kept"]
        if self._kept:
            wanted = self._kept * facts["record"]
            found = self._draws.stat().st_size if self._draws.exists() else 0
            if found < wanted:
                raise self._damaged(self._draws, f"{found} bytes of {wanted}")
            os.truncate(self._draws, wanted)
        return state, facts

    def _refuse_another(self, facts: dict) -> None:
        if facts["format"] > FORMAT:
            raise CheckpointError(f"{self._state} was written by a newer Tunbridge. Upgrade to resume it.")
        if facts["identity"] != self.identity:
            raise CheckpointError(
                f"{self.folder} holds another run: the model, method, data, key or number of steps differ. "
                "Resume with the same ones, or name another folder."
            )

    def _damaged(self, path: Path, why: str) -> CheckpointError:
        return CheckpointError(f"{path} is damaged ({why}). Delete the folder {self.folder} to start anew.")

    def save(self, state: PyTree, records: np.ndarray, facts: dict) -> None:
        """Append draws (num, bytes), then replace the state."""
        self.folder.mkdir(parents=True, exist_ok=True)
        record = int(records.shape[1])
        if len(records):
            with open(self._draws, "ab") as file:
                file.truncate(self._kept * record)  # what an interrupted save may have left
                file.write(records.tobytes())
                _sync(file)
        kept = self._kept + len(records)
        facts = {**facts, "format": FORMAT, "identity": self.identity, "kept": kept, "record": record}
        arrays: dict[str, Any] = {"facts": np.frombuffer(json.dumps(facts).encode(), np.uint8)}
        for i, leaf in enumerate(jax.tree.leaves(state)):
            arrays[f"leaf{i}"] = np.frombuffer(to_host(leaf).tobytes(), np.uint8)
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        temporary = self._state.with_suffix(".tmp")
        with open(temporary, "wb") as file:
            file.write(buffer.getvalue())
            _sync(file)
        os.replace(temporary, self._state)
        self._kept = kept

    def draws(self, record: int) -> np.ndarray:
        """All draws on disk, (num, bytes)."""
        if not self._kept:
            return np.zeros((0, record), np.uint8)
        return np.fromfile(self._draws, np.uint8).reshape(self._kept, record)


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def pack(kept: PyTree, count: int, like: PyTree) -> np.ndarray:
    """The first `count` entries of each leaf, as one row of bytes an entry; `like` is one entry."""
    rows = np.zeros((count, num_bytes(like)), np.uint8)
    if count and rows.shape[1]:
        leaves = [np.ascontiguousarray(to_host(leaf)[:count]) for leaf in jax.tree.leaves(kept)]
        np.concatenate([leaf.reshape(count, -1).view(np.uint8) for leaf in leaves], axis=1, out=rows)
    return rows


def unpack(records: np.ndarray, like: PyTree) -> PyTree:
    """The inverse of `pack`."""
    leaves, treedef = jax.tree.flatten(like)
    columns = np.split(records, np.cumsum([num_bytes(leaf) for leaf in leaves])[:-1], axis=1) if leaves else []
    arrays = [
        np.ascontiguousarray(column).view(leaf.dtype).reshape(len(records), *leaf.shape)
        for column, leaf in zip(columns, leaves, strict=True)
    ]
    return jax.tree.unflatten(treedef, arrays)
