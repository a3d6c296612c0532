"""Methods beside the reference of the curve: a single function is far, draws of the reference itself are near."""

import numpy as np
import pytest

import tunbridge as tb
from tunbridge.bench.comparing.report.page import Page
from tunbridge.bench.comparing.report.sections import gap_section
from tunbridge.bench.truth.gap import fit_gap


@pytest.fixture(scope="module")
def gap():
    short = tb.MAP(train=tb.Train(400))
    return fit_gap({"map": short, "ensemble": tb.Ensemble(short, 3)}, progress=False)


@pytest.mark.slow
def test_each_method_has_its_distance_and_width_in_the_gap(gap):
    assert [row["method"] for row in gap.rows] == ["map", "ensemble"]
    assert all(row["distance"] > 1 and row["seconds"] > 0 for row in gap.rows)
    assert gap.rows[0]["width in the gap"] == 0.0


@pytest.mark.slow
def test_the_nearest_and_the_narrow_are_named(gap):
    near = min(gap.rows, key=lambda row: row["distance"])["method"]
    assert gap.sentences[0].startswith(f"{near} is nearest to the reference posterior")
    assert "Less than half as wide in the gap as the reference: map" in str(gap)


@pytest.mark.slow
def test_the_picture_has_a_panel_for_each_method(gap):
    figure = gap.figure()
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title().split(":")[0] for axes in shown] == ["map", "ensemble"]


@pytest.mark.slow
def test_the_section_shows_the_picture_and_the_table(gap):
    page = Page("title", "lead")
    gap_section(gap)(page)
    text = page.html()
    assert text.count("data:image/png;base64,") == 1
    assert "width in the gap" in text


@pytest.mark.slow
def test_what_a_fit_warns_of_is_said_with_its_name():
    method = tb.RandomWalk(run=tb.Run(2, 5, 10))
    gap = fit_gap({"randomwalk": method}, progress=False)
    assert gap.doubts[0].startswith("randomwalk warns: ")
    assert np.isfinite(gap.rows[0]["distance"])
