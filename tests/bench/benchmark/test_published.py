import numpy as np
import pytest

import tunbridge as tb
from bench_rows import row


def uci(task, method, rmse, nll):
    return [
        row("uci", task, split, method, figures={"RMSE": r, "NLL": n})
        for split, (r, n) in enumerate(zip(rmse, nll, strict=True))
    ]


def test_the_published_table_has_every_set_and_its_splits():
    table = tb.bench.published("uci")
    assert list(table.methods) == ["PBP", "dropout 2016", "dropout 2018", "deep ensembles 2017"]
    for name, method in table.methods.items():
        wanted = set(table.splits) - ({"year"} if name == "dropout 2018" else set())
        assert set(method.figures) == wanted
        assert all(set(found) == {"RMSE", "LL"} for found in method.figures.values())
        assert method.source
        assert method.setup
        assert method.spread in ("standard error", "standard deviation")
    assert table.splits["protein"] == 5
    with pytest.raises(tb.InputError, match="a suite with a published table: uci"):
        tb.bench.published("toy")


def test_a_standard_deviation_becomes_an_error_and_rounding_counts():
    table, rounding = tb.bench.published(), 0.01 / np.sqrt(12)
    assert table.error("deep ensembles 2017", "boston", "RMSE") == pytest.approx(np.hypot(1 / np.sqrt(20), rounding))
    assert table.error("dropout 2018", "boston", "RMSE") == pytest.approx(np.hypot(0.18, rounding))
    assert table.error("PBP", "naval", "RMSE") == pytest.approx(rounding)


def test_what_is_worse_by_two_standard_errors_is_said():
    made = uci("boston", "mcdropout", [3.9, 4.1, 3.9, 4.1], [2.40, 2.41, 2.39, 2.40])
    made += uci("boston", "ensemble", [3.2, 3.4, 3.2, 3.4], [2.0, 2.1, 2.0, 2.1])
    listing = tb.bench.Leaderboard.of(made).beside(tb.bench.published())
    rmse, ll = listing.rows
    assert (rmse["PBP"], rmse["deep ensembles 2017 (±sd)"]) == ("3.01±0.18", "3.28±1.00")
    assert (rmse["our mcdropout"], ll["our mcdropout"]) == ("4.000±0.058", "-2.4000±0.0041")
    words = " ".join(listing.sentences)
    assert "Of 6 comparisons" in words
    assert "worse by more than two standard errors in 2, better in 1" in words
    errors = 1.1 / np.hypot(0.11547 / 2, tb.bench.published().error("dropout 2018", "boston", "RMSE"))
    assert f"mcdropout 4.000±0.058 is worse than dropout 2018 2.90±0.18 by {errors:.1f} standard errors" in words
    assert "Ours covers splits 0-3 (of 20) of boston." in words
    assert "saw test points" in words


def test_a_board_without_the_suite_is_refused():
    with pytest.raises(tb.InputError, match="rows of the suite uci; got small"):
        tb.bench.Leaderboard.of([row()]).beside(tb.bench.published())
    with pytest.raises(tb.InputError, match="tasks of boston"):
        tb.bench.Leaderboard.of([row("uci", "moon")]).beside(tb.bench.published())
