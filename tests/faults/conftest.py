"""Faults happen in a folder that is thrown away: random calls write to files of such names as "tanh"."""

import pytest


@pytest.fixture(autouse=True)
def aside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
