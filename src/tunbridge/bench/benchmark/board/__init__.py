"""A page about a benchmark: one HTML file with its pictures inside, which needs no network."""

from tunbridge.bench.benchmark.board.page import page

__all__ = ["page"]
