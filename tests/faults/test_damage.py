"""Every kind of file that the package reads back, cut off and with flipped bits: its own error, naming the file, or
the very same content."""

import contextlib
import dataclasses
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest

import tunbridge as tb
from bench_rows import rows
from cli.commands import penguins
from toys import Walk, equal, model, table
from tunbridge.bench.benchmark.store import Store
from tunbridge.bench.truth.reference import load_reference
from tunbridge.cli.rundir import RunDir
from tunbridge.cli.study import Rows
from tunbridge.datasets.cells import Conventions
from tunbridge.datasets.encoding import Column, Encoding

KEY = jax.random.key(3)
FILES, TABLES = 1000, 3000
"""Damaged files of each kind, and damaged tables, in the slow tests."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """How a file is made in a folder, which it is, and how it is read back."""

    make: Callable[[Path], None]
    name: str
    read: Callable[[Path], Any]


def _fit(folder, steps=30):
    return Walk(run=tb.Run(1, 5, steps)).fit(model(), table(), key=KEY, checkpoint=folder)


def _results(folder):
    with Store(folder / "results.sqlite", {"tune": True}) as store:
        for row in rows(splits=1):
            store.add(row)


def _read_results(folder):
    with Store(folder / "results.sqlite") as store:
        return store.rows()


def _posterior(folder):
    _fit(None).save(folder)


ENCODING = Encoding(
    (Column("bill"), Column("island", ("Biscoe", "Dream", "Ösel")), Column("when", date=True)),
    (Column("species", ("Adélie", "Gentoo")),),
    "classification",
)


def _run(folder):
    facts = {"encoding": ENCODING.to_json(), "conventions": Conventions(True, None).to_json(), "read": ["60 rows"]}
    RunDir(folder).finish("", _fit(None), facts | {"seed": 3, "scores": [{"NLL": 0.25, "ECE": float("nan")}]})


def _read_run(folder):
    facts = RunDir(folder).facts()
    rest = [facts["seed"], facts["read"], str(facts["scores"])]
    return [Encoding.from_json(facts["encoding"]), Conventions.from_json(facts["conventions"]), *rest]


KINDS = {
    "posterior": Kind(_posterior, "posterior.npz", lambda folder: tb.load(folder).params),
    "state": Kind(_fit, "lane0000/state.npz", lambda folder: _fit(folder).params),
    "draws": Kind(_fit, "lane0000/draws.bin", lambda folder: _fit(folder).params),
    "reference": Kind(
        lambda folder: load_reference("curve").save(folder / "r.npz"),
        "r.npz",
        lambda folder: dataclasses.astuple(load_reference(folder / "r.npz"))[1:4],
    ),
    "results": Kind(_results, "results.sqlite", _read_results),
    "run": Kind(_run, "run.json", _read_run),
}


def _same(one, other):
    return one == other if isinstance(one, dict | list) and not isinstance(one, tuple) else equal(one, other)


def _damaged(whole, rng):
    """Cut off, one bit flipped, a stretch zeroed, or a stretch of noise."""
    data, start = bytearray(whole), rng.randrange(len(whole))
    what = rng.randrange(4)
    if what == 0:
        return bytes(data[:start])
    if what == 1:
        data[start] ^= 1 << rng.randrange(8)
        return bytes(data)
    stretch = slice(start, start + rng.choice([1, 16, 512]))
    data[stretch] = bytes(len(data[stretch])) if what == 2 else rng.randbytes(len(data[stretch]))
    return bytes(data)


@pytest.mark.parametrize("times", [25, pytest.param(FILES, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_a_sentence_with_the_file_or_does_no_harm(kind, times, tmp_path):
    rng = random.Random(11)
    name, read = KINDS[kind].name, KINDS[kind].read
    KINDS[kind].make(tmp_path)
    whole, noticed = (tmp_path / name).read_bytes(), 0
    wanted = read(tmp_path)
    for _ in range(times):
        (tmp_path / name).write_bytes(_damaged(whole, rng))
        try:
            found, said = read(tmp_path), None
        except (tb.LoadError, tb.InputError) as error:
            found, said = None, str(error)
        if said is not None:
            noticed += 1
            assert str(tmp_path / name) in said
        elif kind == "results":  # pages that name rows may be lost, and no row is another
            assert all(row in wanted for row in found)
        else:
            assert _same(found, wanted)
    assert noticed > times // 10


def test_a_run_of_an_earlier_version_or_without_its_checksum_is_refused_with_the_way_out(tmp_path):
    _run(tmp_path)
    file = tmp_path / "run.json"
    facts = json.loads(file.read_text())
    del facts["checksum"]
    for wrong, sentence in ((facts | {"format": 1}, "earlier Tunbridge"), (facts, "'checksum'")):
        file.write_text(json.dumps(wrong))
        with pytest.raises(tb.LoadError, match=rf"run\.json .*{sentence}.* Fit again\."):
            RunDir(tmp_path).facts()


@pytest.mark.parametrize("times", [60, pytest.param(TABLES, marks=pytest.mark.slow)])
def test_damaged_tables_are_read_or_refused_in_a_sentence(times, tmp_path):
    """In four encodings; whatever comes out is Tunbridge's own error or a table."""
    whole = penguins(tmp_path / "data.csv").read_text()
    latin = "café,bär,species\n" + "".join(f"{i},{i * 7 % 5}.5,{i % 2}\n" for i in range(30))
    texts = [whole.encode(), whole.encode("latin-1"), whole.encode("utf-16"), latin.encode("latin-1")]
    rng, read = random.Random(5), 0
    for number in range(times):
        data = texts[number % len(texts)]
        for _ in range(rng.randrange(4)):
            data = _damaged(data, rng) if data else b""
        path = tmp_path / "x.csv"
        path.write_bytes(data)
        with contextlib.suppress(tb.TunbridgeError):
            Rows.read(path, ["species"], drop_missing=rng.random() < 0.5)
            read += 1
    assert times // 8 < read < times
