"""The report on a fit or a comparison: one self-contained HTML file with embedded pictures."""

from tunbridge.bench.comparing.report.report import Study, report

__all__ = ["Study", "report"]
