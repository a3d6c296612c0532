"""The page about the tests is what its script writes, and every mutant changes exactly one place."""

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch):
    """A function that imports a script."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


def test_the_page_is_what_its_script_writes(script):
    testing, record = script("testing"), script("record")
    assert testing.PAGE.read_text() == testing.page(record.recorded("testing"), record.recorded("mutants"))


def test_every_mutant_changes_one_place_and_is_noticed(script):
    mutants = script("mutants").MUTANTS
    caught = script("record").recorded("mutants")
    assert set(caught) == set(mutants)
    for name, mutant in mutants.items():
        source = (ROOT / "src" / "tunbridge" / mutant.file).read_text()
        assert source.count(mutant.right) == 1, name
    assert sum(bool(row["caught by"]) for row in caught.values()) >= 28


def test_imports_between_files_of_tests_resolve():
    """Files of tests import one another by their path below tests/; some do so where PyTorch is installed only."""
    tests = ROOT / "tests"
    folders = {path.name for path in tests.iterdir() if path.is_dir()}
    for path in tests.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in folders:
                place = tests.joinpath(*node.module.split("."))
                files = [place / alias.name for alias in node.names] if place.is_dir() else [place]
                assert all(file.with_suffix(".py").exists() for file in files), (path, node.module)
