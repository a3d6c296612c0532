"""The page on reliability says how often the tests do what they do."""

from pathlib import Path

from faults import figures

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


def test_the_page_has_the_figures_of_the_tests():
    assert figures.table() in PAGE.read_text(), "run PYTHONPATH=tests python -m faults.figures"
