"""A page about a fit or a comparison: one HTML file with its pictures inside, which needs no network."""

from tunbridge.bench.comparing.report.report import Study, report

__all__ = ["Study", "report"]
