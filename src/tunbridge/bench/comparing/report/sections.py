"""Sections that a page may have besides its own."""

from collections.abc import Callable

from tunbridge.bench.comparing.report.page import Page
from tunbridge.bench.truth.gap import Gap

Section = Callable[[Page], None]
"""Adds to a page."""


def gap_section(gap: Gap) -> Section:
    """Methods beside a reference posterior: the picture, distances and sentences."""

    def add(page: Page) -> None:
        page.heading("Where there are no data: methods beside the reference posterior")
        page.paragraph(" ".join(gap.sentences))
        page.figure(
            gap.figure(),
            "30 points of a curve with a gap. In grey, 90 % of the functions of the posterior, by long chains of NUTS "
            "that passed their checks; in blue, 90 % of those of each method. A method that is right covers the grey.",
        )
        page.table(gap.rows)
        page.paragraph(
            "Distance: sliced Wasserstein between functions, in units of that between the two halves of the reference. "
            "Width in the gap: the standard deviation of functions there over that among the data, divided by the "
            "same of the reference; 1 is right, below 1 too sure."
        )

    return add
