"""What is written is also true: docstrings run, public names are documented, tutorials run, references exist."""

import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tunbridge as tb

ROOT = Path(__file__).parents[2]
MODULES = sorted(module.name for module in pkgutil.walk_packages(tb.__path__, "tunbridge."))
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def _public():
    for name in MODULES:
        module = importlib.import_module(name)
        assert module.__doc__, f"{name} has no docstring"
        for label, thing in vars(module).items():
            if label.startswith("_") or getattr(thing, "__module__", None) != name:
                continue
            if inspect.isclass(thing) or inspect.isfunction(thing):
                yield f"{name}.{label}", thing


def test_every_public_thing_has_a_docstring():
    missing = []
    for name, thing in _public():
        if not thing.__doc__ or "Alias for field" in thing.__doc__:
            missing.append(name)
        if inspect.isclass(thing):
            own = [(label, part) for label, part in vars(thing).items() if not label.startswith("_")]
            methods = [(label, part) for label, part in own if inspect.isfunction(part) or isinstance(part, property)]
            missing += [f"{name}.{label}" for label, part in methods if not inspect.getdoc(part)]
    assert missing == []


def test_every_public_name_is_in_the_reference():
    written = "".join(path.read_text() for path in (ROOT / "docs").glob("api/*.md"))
    for name in tb.__all__:
        assert re.search(rf"tunbridge\.{name}\b", written), f"{name} is missing in docs/api"
    for room in (
        "applications",
        "networks",
        "priors",
        "likelihoods",
        "metrics",
        "plots",
        "datasets",
        "bench",
        "diagnostics",
        "schedules",
    ):
        module = getattr(tb, room)
        for name in module.__all__:
            assert re.search(rf"\b{name}\b", written), f"tb.{room}.{name} is missing in docs/api"


def test_every_citation_is_in_the_bibliography():
    keys = set(re.findall(r"^@\w+\{(\w+),", (ROOT / "src" / "tunbridge" / "references.bib").read_text(), re.M))
    sources = [*ROOT.glob("src/**/*.py"), *ROOT.glob("docs/**/*.md")]
    cited = {
        key
        for path in sources
        for group in re.findall(r"cite:[pt]:?\}?`([\w, ]+)`|\{cite:[pt]\}`([\w, ]+)`", path.read_text())
        for key in re.findall(r"\w+", "".join(group))
    }
    assert cited
    assert cited <= keys
    assert keys <= cited, f"never cited: {keys - cited}"


@pytest.mark.slow  # make docs runs them too
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorials_run(path, monkeypatch):
    import matplotlib.pyplot as plt

    cells = re.findall(r"```\{code-cell\}[^\n]*\n((?::[^\n]*\n)*)(.*?)```", path.read_text(), re.S)
    assert cells
    scope = {"__name__": "tutorial"}
    for _, cell in cells:
        exec(compile(cell, str(path), "exec"), scope)
    plt.close("all")


@pytest.mark.parametrize("framework", ["keras", "torch"])
def test_networks_from_elsewhere_run(framework):
    pytest.importorskip(framework)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "networks.md").read_text(), re.S)
    (code,) = [block for block in blocks if f"import {framework}\n" in block]
    scope = {}
    exec(compile(code, "networks.md", "exec"), scope)
    model, rows = scope["model"].bind(tb.Data([[0.0], [1.0]], [0.0, 1.0]))
    assert model.check_inputs(model.network.weights, rows.x, 1) is None


def test_the_changelog_knows_the_version():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert tb.__version__ == version
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_readme_example_runs():
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    scope = {}
    exec(compile(code, "README.md", "exec"), scope)
    assert [row["method"] for row in scope["table"].rows] == ["map", "ensemble"]
    assert scope["predictive"].mean.shape == (2, 1)
    assert float(scope["predictive"].epistemic.max()) > 0


def test_the_dependency_rule_holds():
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"  # it silences loggers
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)


def test_ci_runs_make_test():
    lines = [line.strip() for line in (ROOT / ".ci" / "run").read_text().splitlines()]
    assert lines[-1] == "make test"
