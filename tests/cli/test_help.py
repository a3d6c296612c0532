"""The help is complete, and says the same as the docs."""

import re
import subprocess
import sys
from pathlib import Path

import jax
import pytest
import typer

import tunbridge as tb
from cli.commands import call
from tunbridge.cli import app

DOCS = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
COMMANDS = typer.main.get_command(app).commands


def test_every_command_has_a_section_and_a_sentence():
    assert re.findall(r"^## (\w+)$", DOCS, re.M) == list(COMMANDS)
    _, said, _ = call("--help")
    assert all(name in said for name in COMMANDS)
    assert all(command.help for command in COMMANDS.values())


@pytest.mark.parametrize("name", COMMANDS)
def test_options_are_those_of_the_docs_and_each_has_a_sentence(name):
    options = [parameter for parameter in COMMANDS[name].params if parameter.param_type_name == "option"]
    named = {flag for option in options for flag in option.opts} - {"--help"}
    section = re.search(rf"^## {name}$(.*?)(?=^## |\Z)", DOCS, re.M | re.S).group(1)
    rows = re.findall(r"^\| (`-.*?) \|", section, re.M)
    assert set(re.findall(r"`(-[\w-]+)`", " ".join(rows))) == named
    code, said, _ = call(name, "--help")
    assert code == 0
    assert all(flag in said for flag in named)
    assert all(option.help for option in options)


def test_the_version_is_that_of_the_package_and_of_jax():
    code, said, error = call("--version")
    assert (code, error) == (0, "")
    assert said == f"tunbridge {tb.__version__}, jax {jax.__version__}\n"


HEAVY = """
import sys
from tunbridge.cli import main

sys.argv = ["tunbridge", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    print(end.code or 0, sorted({"jax", "sklearn", "matplotlib", "numpyro"} & set(sys.modules)))
"""


CHEAP = [(0, line) for line in ("--help", "--version", "methods", "priors", "bench --list")] + [
    (2, line)
    for line in (
        "priors --out none/a.png",
        "bench toy --out file",
        "fit none.csv -t a",
        "fit file.txt -t a",
        "fit rows.csv -t a --out file",
        "fit rows.csv -t a -m magic",
        "compare none.csv -t a",
        "compare rows.csv -t a --out file",
        "predict none rows.csv",
        "info none",
        "reference show none.npz",
        "reference make none.csv -t a --out a.npz",
    )
]


@pytest.mark.parametrize(("code", "line"), CHEAP)
def test_what_needs_no_model_imports_nothing_heavy(code, line, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    command = [sys.executable, "-c", HEAVY, *line.split()]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout.strip().endswith(f"{code} []"), done.stdout + done.stderr
