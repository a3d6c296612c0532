"""Everything in the package that writes a file: how it writes version n, and how what is there is read back.

Processes are forked from one that has imported this file, so it imports nothing that starts JAX's threads, which a
fork leaves behind: `tunbridge.bench` imports BlackJAX, which computes while it is imported.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from bench_rows import rows
from tunbridge.cli.rundir import RunDir
from tunbridge.core import archive, files
from tunbridge.datasets import table as tables
from tunbridge.datasets.download import fetch
from tunbridge.runtime.checkpoint import Checkpoint


@dataclasses.dataclass(frozen=True)
class Writer:
    """`write(folder, n)` writes version n over version n - 1; `read(folder)` gives the version, None if there is none.

    What is damaged, or partly of one version and partly of another, `read` refuses. Several files are replaced one
    after another: a kill in between may leave none, and a checkpoint from which the same command goes on.
    """

    write: Callable[[Path, int], None]
    read: Callable[[Path], int | None]
    several: bool = False


def _one(values: Any) -> int:
    """The number that all values are."""
    (found,) = set(values)
    return int(found)


def _replace(folder, n):
    with files.replacing(folder / "file") as file:
        file.write(str(n % 10).encode() * 50_000)


def _replaced(folder):
    path = folder / "file"
    if not path.exists():
        return None
    text = path.read_text()
    assert len(text) == 50_000
    return _one(text)


def _archived(folder):
    path = folder / "file.npz"
    if not path.exists():
        return None
    facts, arrays = archive.read(path)
    return _one([facts["n"], *arrays["0"]])


def _save(folder, n):
    with files.locked(folder):
        store = Checkpoint(folder / "lane", "me")
        if (found := store.load(_state(0), {"step": 0})) is not None:
            n = found[1]["step"] + 1
        store.save(_state(n), np.full((7, 1000), n % 256, np.uint8), {"step": n})


def _state(n):
    return {"step": np.int32(n), "rest": np.full(5_000, n, np.int32)}


def _saved(folder):
    store = Checkpoint(folder / "lane", "me")
    found = store.load(_state(0), {"step": 0})
    if found is None:
        return None
    state, facts = found
    draws = store.draws(1000)
    assert [_one(draw) for draw in draws[::7]] == [(facts["step"] - i) % 256 for i in reversed(range(len(draws) // 7))]
    return _one([facts["step"], int(state["step"]), *np.asarray(state["rest"])])


def _add(folder, n):
    from tunbridge.bench.benchmark.store import Store

    with Store(folder / "results.sqlite", {"tune": True}) as store:
        for row in rows(splits=1):
            store.add(row | {"key": n})


def _added(folder):
    if not (folder / "results.sqlite").exists():
        return None
    from tunbridge.bench.benchmark.store import Store

    with Store(folder / "results.sqlite", {"tune": True}) as store:
        return max((row["key"] for row in store.rows()), default=None)


def _tabled(folder):
    path = folder / "t.csv"
    return _one(tables.read(path).table["a"].to_pylist()) if path.exists() else None


def _download(folder, n):
    source = folder.parent / f"source-{n}"
    source.mkdir(exist_ok=True)
    content = str(n % 10).encode() * 50_000
    (source / "file").write_bytes(content)
    fetch((source / "file").as_uri(), hashlib.sha256(content).hexdigest(), folder)


class _Saved:
    """As much of a posterior as `RunDir.finish` needs."""

    def __init__(self, n):
        self.n = n

    def save(self, folder):
        archive.write(Path(folder) / "posterior.npz", {"n": self.n}, {"0": np.full(5_000, self.n)})


def _finish(folder, n):
    with files.locked(folder):
        RunDir(folder).finish(str(n % 10) * 50_000, _Saved(n), {"n": n})


def _finished(folder):
    if not (folder / "posterior.npz").exists():  # the last to come: without it there is no fit
        return None
    facts, arrays = archive.read(folder / "posterior.npz")
    n = _one([facts["n"], *arrays["0"]])
    assert json.loads((folder / "run.json").read_text())["n"] == n
    assert _one((folder / "report.html").read_text()) == n % 10
    return n


def _bench(folder, n):
    from tunbridge.cli import benching

    benching.write([row | {"split": n} for row in rows(tasks=("wine",), splits=1)], "small", folder)


def _benched(folder):
    page = folder / "report.html"
    if not page.exists():
        return None
    assert page.read_text().rstrip().endswith("</html>")
    return 1


def _draw(folder, n):
    from matplotlib.figure import Figure

    from tunbridge.bench.beliefs import gallery

    with mock.patch.object(gallery, "draw", return_value=Figure(figsize=(1 + n % 10, 1))):
        gallery.save(folder / "g.png")


def _drawn(folder):
    if not (folder / "g.png").exists():
        return None
    from matplotlib.image import imread

    return round(imread(folder / "g.png").shape[1] / 110) - 1


def _note(folder, n):
    from tunbridge.applications.acquisition.notes import FILE, Notes

    with files.locked(folder):
        notes = Notes(folder / FILE, "me")
        n = notes.rows[-1]["n"] + 1 if notes.rows else n
        notes.chosen, notes.labels = [n] * 5_000, [n] * 5_000
        notes.score({"n": n})


def _noted(folder):
    from tunbridge.applications.acquisition.notes import FILE, Notes

    notes = Notes(folder / FILE, "me")
    return _one([notes.rows[-1]["n"], *notes.chosen, *notes.labels]) if notes.rows else None


def _play(folder, n):
    from tunbridge.applications.bandits import runner

    with files.locked(folder):
        path = folder / runner.FILE
        n = len(archive.read(path)[1]["0"]) + 1 if path.exists() else n
        runner._State(np.full(n, n % 7), np.full(n, float(n % 7)), n, n, _Saved(n)).write(folder, "me")


def _played(folder):
    from tunbridge.applications.bandits import runner

    if not (folder / runner.FILE).exists():
        return None
    facts, arrays = archive.read(folder / runner.FILE)
    n = len(arrays["0"])
    assert _one([*arrays["0"], *arrays["1"]]) == n % 7
    kept, draws = archive.read(folder / facts["posterior"] / "posterior.npz")
    return _one([n, facts["fits"], kept["n"], *draws["0"]])


WRITERS = {
    "core/files.py": Writer(_replace, _replaced),
    "core/archive.py": Writer(
        lambda folder, n: archive.write(folder / "file.npz", {"n": n}, {"0": np.full(20_000, n)}), _archived
    ),
    "runtime/checkpoint.py": Writer(_save, _saved),
    "bench/benchmark/store.py": Writer(_add, _added),
    "bench/beliefs/gallery.py": Writer(_draw, _drawn),
    "datasets/table.py": Writer(
        lambda folder, n: tables.write(pa.table({"a": np.full(5_000, n)}), folder / "t.csv"), _tabled
    ),
    "datasets/download.py": Writer(_download, _replaced),
    "cli/rundir.py": Writer(_finish, _finished, several=True),
    "cli/benching.py": Writer(_bench, _benched),
    "applications/acquisition/notes.py": Writer(_note, _noted),
    "applications/bandits/runner.py": Writer(_play, _played),
}
"""By the file of the package that writes."""


def write_on(name, folder, first, written):
    """Write version after version, and say which are whole; runs in a process that is killed."""
    n = first
    while True:
        WRITERS[name].write(folder, n)
        written.value = n
        n += 1
