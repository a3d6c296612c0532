"""The benchmark report: one self-contained HTML file with embedded pictures."""

from tunbridge.bench.benchmark.board.page import page

__all__ = ["page"]
