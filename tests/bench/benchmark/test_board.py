import re

import matplotlib.pyplot as plt
import numpy as np
import pytest

import tunbridge as tb
from bench_rows import failed, row, rows
from tunbridge.bench.benchmark.board import pictures

SECTIONS = [
    "small: leaderboard",
    "small: NLL",
    "small: RMSE",
    "small: accuracy",
    "small: AUROC",
    "small: in-between",
    "small: differences from the best on each task",
    "small: cost",
    "small: calibration of numbers",
    "small: calibration of classes",
    "small: functions",
    "small: uncertainty against distance from the data",
    "small: epistemic uncertainty against the number of rows",
    "small: entropy inside and outside, wine",
    "small: distance to the reference",
    "small: settings chosen by tuning",
    "Failed fits",
    "Warnings from fits that finished",
    "How these figures were made",
]


def headings(page):
    return re.findall("<h2>(.*?)</h2>", page)


@pytest.fixture(scope="module")
def full():
    plt.close("all")
    return tb.bench.page(rows(), title="A benchmark", command="tunbridge bench small --splits 0-3")


@pytest.mark.slow
def test_a_page_has_every_section(full):
    found = headings(full)
    assert [name for name in SECTIONS if name not in found] == []
    assert full.count("<img ") == 10
    assert plt.get_fignums() == []


@pytest.mark.slow
def test_a_page_needs_no_network(full):
    assert re.findall(r'(?:src|href)="(?!data:image/png;base64,)', full) == []
    assert "<script" not in full
    assert "http" not in re.sub(r"http-equiv", "", full)


@pytest.mark.slow
def test_a_page_shows_failures_settings_and_how_it_was_made(full):
    assert "NumericalError: Stopped at step 3" in full
    assert '<td class="words">diabetes: R-hat is 1.2</td>' in full
    assert "step_size 0.01" in full
    assert "tunbridge bench small --splits 0-3" in full
    assert "jax 0.10.1" in full


def test_sections_without_data_are_left_out():
    page = tb.bench.page([row(), row(method="nuts", figures={"NLL": 2.0})], title="Two fits", command="none")
    assert headings(page) == [
        "small: leaderboard",
        "small: NLL",
        "small: differences from the best on each task",
        "How these figures were made",
    ]


def test_a_page_of_failures_alone_is_a_page():
    page = tb.bench.page([failed(method="a"), failed(method="b")], title="Nothing", command="none")
    assert "Failed fits" in headings(page)
    assert "Stopped at step 3" in page


def test_what_comes_from_rows_is_escaped():
    names = {"method": "<b>$m$", "task": "<i>t", "error": "<script>alert(1)</script>"}
    made = [row(method=names["method"], task=names["task"]), row(method="b", task=names["task"])]
    page = tb.bench.page(
        [*made, row(method="c", task=names["task"], status="failed", error=names["error"], figures={})],
        title="<u>",
        command="<s>",
    )
    assert not re.search("<(b|i|u|s|script)>", page)
    assert "&lt;script&gt;alert(1)" in page


def test_other_figures_are_shown_by_name_and_curves_of_changes_together():
    line = {"x": [1, 2, 3], "y": [0.9, 0.8, 0.6]}
    curves = {"accuracy by noise": line, "accuracy by blur": line, "sd by distance": line}
    made = [row(method=name, figures={"NLL": 1.0, "luck": 3.0}, curves=curves) for name in "ab"]
    page = tb.bench.page(made, title="Shift", command="none")
    assert "small: luck" in headings(page)
    assert headings(page).count("small: accuracy as inputs change") == 1
    assert pictures.by_change(made) == {"accuracy": {name: {"a": line, "b": line} for name in ("noise", "blur")}}
    two = [*made, row(task="wine", curves={"accuracy by blur": line})]
    assert list(pictures.by_change(two)["accuracy"]) == ["noise", "diabetes, blur", "wine, blur"]


def test_curves_are_averaged_where_all_of_them_are():
    same = [
        row(split=0, curves={"c": {"x": [0, 1], "y": [0, 2]}}),
        row(split=1, curves={"c": {"x": [0, 1], "y": [2, 2]}}),
    ]
    assert pictures.mean_curves(same, "c")["diabetes"]["map"] == {"x": [0, 1], "y": [1, 2]}
    other = [*same, row(split=2, curves={"c": {"x": [2.0, 0.5], "y": [1.0, 1.0]}})]
    found = pictures.mean_curves(other, "c")["diabetes"]["map"]
    assert (min(found["x"]), max(found["x"])) == (0.5, 1.0)
    assert found["y"][0] == pytest.approx((1.0 + 2.0 + 1.0) / 3)


def test_histograms_take_edges_or_middles():
    for x in ([0.0, 1.0, 2.0], [0.5, 1.5]):
        edges, heights = pictures.bins({"x": x, "y": [0.3, 0.7]})
        np.testing.assert_allclose(edges, [0.0, 1.0, 2.0])
        np.testing.assert_allclose(heights, [0.3, 0.7])


def test_a_dozen_methods_look_different():
    looks = pictures.looks([f"m{number}" for number in range(12)])
    assert len({tuple(look.values()) for look in looks.values()}) == 12
