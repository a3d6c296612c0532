"""A command that writes one file replaces none without --overwrite."""

import pytest

from cli.commands import call
from tunbridge.datasets import table as tables


@pytest.mark.parametrize(
    "command",
    [
        "data wine --out {out}.csv",
        "predict run rows.csv --out {out}.csv",
        "priors --out {out}.png",
        "reference make curve --out {out}.npz",
        "reference make rows.csv -t y --out {out}.npz",
    ],
)
def test_an_existing_file_is_refused_before_anything_is_read_or_computed(command, tmp_path):
    words = command.format(out=tmp_path / "precious").split()
    (out := tmp_path / words[-1]).write_text("precious")
    code, said, error = call(*words)
    assert (code, said) == (2, "")
    assert error == f"Error: Expected an --out that does not exist yet; got {out}. Name another, or add --overwrite.\n"
    assert out.read_text() == "precious"


def test_a_folder_is_no_output_file_even_with_overwrite(tmp_path):
    (tmp_path / "wine.csv").mkdir()
    code, _, error = call("data", "wine", "--out", tmp_path / "wine.csv", "--overwrite")
    assert code == 2
    assert "a file as --out" in error


def test_overwrite_replaces_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("data", "wine")[0] == 0
    assert call("data", "wine")[0] == 2
    (tmp_path / "wine.csv").write_text("")
    assert call("data", "wine", "--overwrite")[0] == 0
    assert tables.read(tmp_path / "wine.csv").table.num_rows == 178
