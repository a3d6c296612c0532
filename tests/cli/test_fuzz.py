"""Whatever table comes, a user of the command line sees a result or one sentence: never a traceback."""

import csv
import datetime
import importlib
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tunbridge as tb
from cli.commands import call
from tunbridge.inference.standardised import Standardised

COMPARE = importlib.import_module("tunbridge.bench.comparing.compare")
NAMES = st.one_of(
    st.sampled_from(["y", "x", " x", "größe", "身長", "<script>alert(1)</script>", "$a_b$", "a,b", 'q"', "", "-t"]),
    st.text(min_size=1, max_size=6).filter(lambda text: "\x00" not in text),
)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
CELLS = {
    "whole": st.integers(-3, 3),
    "huge": st.integers(-(2**70), 2**70),
    "float": NUMBERS,
    "broken": st.one_of(NUMBERS, st.sampled_from([float("nan"), float("inf"), float("-inf")])),
    "tiny": st.floats(-1e-300, 1e-300),
    "vast": st.floats(1e300, 1e308),
    "bool": st.booleans(),
    "text": st.text(max_size=4).filter(lambda text: "\x00" not in text),
    "level": st.sampled_from(["u", "v", "w"]),
    "gaps": st.one_of(st.none(), st.integers(0, 5)),
    "mixed": st.one_of(st.integers(0, 5), st.text(max_size=3).filter(lambda text: "\x00" not in text), st.none()),
    "date": st.datetimes(datetime.datetime(1800, 1, 1), datetime.datetime(2200, 1, 1)),
    "nothing": st.none(),
}


@st.composite
def frames(draw):
    """Column names (perhaps twice the same), and rows; a column may be constant."""
    names = draw(st.lists(NAMES, min_size=1, max_size=5))
    num = draw(st.sampled_from([0, 1, 2, 9, 10, 12, 15]))
    columns = []
    for _ in names:
        cells = CELLS[draw(st.sampled_from(sorted(CELLS)))]
        if draw(st.booleans()):
            columns.append(draw(st.lists(cells, min_size=num, max_size=num)))
        else:
            columns.append([draw(cells)] * num)
    return names, columns


def _written(frame, folder, parquet):
    """The frame as a file; None where Arrow has no type for a column."""
    names, columns = frame
    if parquet:
        try:
            table = pa.Table.from_arrays([pa.array(column) for column in columns], names=names)
        except (pa.ArrowException, OverflowError):
            return None
        pyarrow.parquet.write_table(table, folder / "data.parquet")
        return folder / "data.parquet"
    with open(folder / "data.csv", "w", newline="", encoding="utf-8", errors="surrogatepass") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(zip(*columns, strict=True))
    return folder / "data.csv"


def _judged(frame, parquet, *options):
    """Call `fit` with the first column as the target, and look at what a user would see."""
    with tempfile.TemporaryDirectory() as folder:
        path = _written(frame, Path(folder), parquet)
        if path is None:
            return None
        out = Path(folder) / "run"
        code, said, error = call("fit", path, f"--target={frame[0][0]}", "-m", "map", "--out", out, *options)
        assert "Traceback" not in said + error
        assert "should not happen" not in error, error
        if code:
            assert code == 2, error
            assert error.startswith("Error: "), error
            assert error.count("\n") == 1, error
            assert not out.exists()
    return code


class Reached(tb.InputError):
    """The table was taken: the fit would begin."""


@pytest.mark.slow
@settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
@given(frame=frames(), parquet=st.booleans())
def test_thousands_of_tables_end_in_a_sentence_or_reach_the_fit(frame, parquet):
    def reached(method, model, x, y, weight, **options):
        model.bind(tb.Data(x, y, weight))
        raise Reached("nothing", "a good table", "Go on.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(COMPARE, "fit_standardised", reached)
        _judged(frame, parquet)


def _untrained(method, model, x, y, weight, *, key, **options):
    """A posterior without a fit: what comes after it is what is tried here."""
    scaling = tb.datasets.Scaling.of(x, y if isinstance(model.likelihood, tb.likelihoods.Gaussian) else None, weight)
    bound, rows = model.bind(tb.Data(scaling.inputs(x), scaling.targets(y), weight))
    weights = bound.network.init(key, rows.x)
    scales = bound.prior.median_scales(weights, bound.network.layout(weights))
    params = tb.Params(weights, scales, bound.likelihood.median_noise())
    return Standardised(bound, key, tb.Point(bound, key, params), scaling)


NUMERIC = st.sampled_from(["whole", "float", "tiny", "vast", "bool", "level", "date", "huge"])


@st.composite
def sound_frames(draw):
    """Two inputs and a target without gaps."""
    columns = [draw(st.lists(CELLS[draw(NUMERIC)], min_size=12, max_size=12)) for _ in range(3)]
    return draw(st.lists(NAMES.filter(str.strip), min_size=3, max_size=3, unique=True)), columns


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
@given(frame=sound_frames())
def test_sound_tables_get_a_posterior_and_a_report(frame):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(COMPARE, "fit_standardised", _untrained)
        _judged(frame, False, "--hidden", "3", "-q")


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
@given(frame=frames(), parquet=st.booleans())
def test_tables_end_in_a_sentence_or_reach_the_fit(frame, parquet):
    test_thousands_of_tables_end_in_a_sentence_or_reach_the_fit.hypothesis.inner_test(frame, parquet)
