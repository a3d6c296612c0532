"""References from the command line."""

import numpy as np
import pyarrow as pa
import pytest

from cli.commands import call
from tunbridge.bench import load_reference
from tunbridge.datasets import table as tables

SHORT = ("--hidden", "", "--chains", "2", "--warmup", "300", "-q")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """A file of 40 rows on a line."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=40)
    path = tmp_path_factory.mktemp("rows") / "line.csv"
    tables.write(pa.table({"x": x, "y": 2 * x + 0.5 * rng.normal(size=40)}), path)
    return path


@pytest.mark.slow
def test_a_reference_of_a_table_is_made_listed_and_shown(rows, tmp_path):
    out = tmp_path / "mine.npz"
    code, said, error = call("reference", "make", rows, "-t", "y", "--out", out, "--draws", "1500", *SHORT)
    assert code == 0, error
    assert said.strip().endswith(f"Reference: {out}")
    made = load_reference(out)
    assert made.predictions.shape == (400, 8, 1)
    assert made.provenance["rows"] == 32
    assert made.checks["means apart"] < 0.1
    code, said, _ = call("reference", "list", "--folder", tmp_path)
    assert code == 0
    assert all(name in said for name in ("mine", "curve", "diabetes_gap"))
    code, said, _ = call("reference", "show", "mine", "--folder", tmp_path)
    assert code == 0
    assert "means apart" in said


@pytest.mark.slow
def test_runs_that_disagree_are_refused_with_the_numbers_of_the_checks(rows, tmp_path):
    out = tmp_path / "mine.npz"
    code, _, error = call("reference", "make", rows, "-t", "y", "--out", out, "--draws", "20", *SHORT)
    assert code == 1
    assert "This run is not a reference: " in error
    assert "limit 0.1" in error
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("make", "nothing", "-o", "a.npz"), "one of curve, diabetes"),
        (("make", "curve"), "--out as a .npz file"),
        (("make", "curve", "-o", "a.csv"), "--out as a .npz file"),
        (("make", "none.csv", "-t", "y", "-o", "a.npz"), "there is none"),
        (("make", "{rows}", "-t", "y", "-o", "a.npz", "--draws", "0"), "draws= as a whole number"),
        (("show", "nothing"), "one of breast_cancer, curve"),
    ],
)
def test_a_wrong_call_ends_with_one_sentence(arguments, sentence, rows):
    code, _, error = call("reference", *(argument.format(rows=rows) for argument in arguments))
    assert code == 2
    assert sentence in error
