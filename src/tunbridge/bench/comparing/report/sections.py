"""Optional sections of a report."""

from collections.abc import Callable

from tunbridge.bench.comparing.report.page import Page
from tunbridge.bench.truth.gap import Gap

Section = Callable[[Page], None]
"""A function that adds a section to a page."""


def gap_section(gap: Gap) -> Section:
    """Section on methods beside a reference posterior: picture, distances and sentences."""

    def add(page: Page) -> None:
        page.heading("In a gap between the data: methods beside the reference posterior")
        page.paragraph(" ".join(gap.sentences))
        page.figure(
            gap.figure(),
            "30 points of a curve with a gap. Grey: 90 % band of functions under the posterior, from long NUTS chains "
            "that passed their convergence checks. Blue: the same band for each method. A correct method covers the "
            "grey band.",
        )
        page.table(gap.rows)
        page.paragraph(
            "Distance: sliced Wasserstein distance between functions, divided by that between the two halves of "
            "the reference. Width in the gap: the standard deviation of functions in the gap over that among the data, "
            "divided by the same ratio for the reference; 1 is correct, below 1 is overconfident."
        )

    return add
