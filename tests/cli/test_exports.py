"""Tables as spreadsheets export them, from the file to the answer."""

import csv
import json

import numpy as np
import pyarrow as pa
import pytest

from cli.commands import call
from tunbridge.datasets import table as tables

QUICK = ("-m", "map", "--hidden", "4", "--seconds", "0.1")


def _german(path, rows):
    lines = [
        f"{str(round(x, 3)).replace('.', ',')};{day:02d}/03/2020;{town};{y:.2f}".replace(".", ",")
        for x, day, town, y in rows
    ]
    path.write_bytes(("größe;wann;ort;preis\n" + "\n".join(lines) + "\n").encode("latin-1"))
    return path


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports")
    rng = np.random.default_rng(0)
    rows = [(x, 1 + i % 28, "Köln" if i % 2 else "Ulm", 3 * x) for i, x in enumerate(rng.normal(10, 2, 40))]
    code, said, error = call("fit", _german(folder / "data.csv", rows), "-t", "preis", "--out", folder / "run", *QUICK)
    assert code == 0, error
    return folder, said


@pytest.mark.slow
def test_a_german_export_is_read_as_its_author_meant_it(fitted):
    folder, said = fitted
    assert "Windows-1252" in said
    assert "separated by semicolons" in said
    assert "3 inputs: 2 numbers, 1 categories." in said
    facts = json.loads((folder / "run" / "run.json").read_text(encoding="utf-8"))
    assert facts["conventions"] == {"decimal_comma": True, "day_first": True}
    assert [column["date"] for column in facts["encoding"]["features"]] == [False, True, False]


@pytest.mark.slow
def test_new_rows_are_read_by_the_conventions_of_the_training_rows(fitted, tmp_path):
    """Alone, each cell could mean two things: 10,250 and 01/03/2020."""
    one = tmp_path / "one.csv"
    one.write_text('größe,wann,ort\n"10,250",01/03/2020,Ulm\n', encoding="utf-8")
    two = tmp_path / "two.csv"
    two.write_text("größe,wann,ort\n10.25,2020-03-01,Ulm\n", encoding="utf-8")
    answers = [call("predict", fitted[0] / "run", path) for path in (one, two)]
    assert answers[0] == answers[1]
    assert answers[0][0] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("viel;01/03/2020;Ulm", "a number in every cell of 'größe', as in training; got 'viel' in line 3 of new.csv"),
        ("1,5;bald;Ulm", "a date in every cell of 'wann', as in training; got 'bald' in line 3 of new.csv"),
        ("1,5;01/03/2020;Bonn", "got 'Bonn', first in line 3"),
        ("1,5;;Ulm", "none in 'wann' (line 3; 1 in all)"),
    ],
)
def test_a_new_row_that_cannot_be_read_is_named_by_line_and_column(fitted, row, sentence, tmp_path):
    path = tmp_path / "new.csv"
    path.write_text(f"größe;wann;ort\n2,5;13/03/2020;Ulm\n{row}\n", encoding="latin-1")
    code, _, error = call("predict", fitted[0] / "run", path)
    assert code == 2
    assert sentence in error


def test_a_bad_cell_is_named_before_a_fit(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("x,n,y\n" + "".join(f"{i},{i}.5,{i}.25\n" for i in range(29)) + "30,12x,1.5\n")
    code, _, error = call("fit", path, "-t", "y", "--out", tmp_path / "run", *QUICK)
    assert code == 2
    assert "a number in every cell of 'n', as its other cells are; got '12x' in line 31 of data.csv" in error
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_column_with_a_bad_cell_can_be_ignored(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("x,n,y\n" + "".join(f"{i},{i}.5,{i}.25\n" for i in range(29)) + "30,12x,1.5\n")
    code, _, error = call("fit", path, "-t", "y", "--ignore", "n", "--out", tmp_path / "run", *QUICK)
    assert code == 0, error


@pytest.mark.slow
def test_columns_of_any_name_stand_beside_the_reports_own(tmp_path):
    """A table whose columns are called as the report and the predictions call their own."""
    rng = np.random.default_rng(0)
    columns = {name: rng.normal(size=50) for name in ("row", "mean", "aleatoric sd", "y_mean")}
    columns["y"] = columns["row"] + 0.1 * rng.normal(size=50)
    data = tmp_path / "data.csv"
    tables.write(pa.table(columns), data)
    quick = ("-m", "ensemble", "--hidden", "4", "--seconds", "0.1", "-q", "--out", tmp_path / "run")
    assert call("fit", data, "-t", "y", "-t", "y_mean", *quick)[0] == 0
    page = (tmp_path / "run" / "report.html").read_text()
    for name in ("row", "row (2)", "mean of y", "mean"):
        assert f">{name}</th>" in page
    code, said, _ = call("predict", tmp_path / "run", data, "--drop-missing")
    assert code == 0
    assert said.splitlines()[0].startswith('"row","y_mean",')
    assert '"y_mean_mean"' in said


def test_labels_that_look_like_formulas_are_not_run_by_a_spreadsheet(tmp_path):
    labels = ["=1+1", "-2", "@sum", "+x", "plain"]
    tables.write(pa.table({"=label": labels, "number": [-1.0, 2.0, 3.0, 4.0, 5.0]}), tmp_path / "t.csv")
    found = list(csv.reader((tmp_path / "t.csv").read_text().splitlines()))
    assert found[0] == ["'=label", "number"]
    assert [row[0] for row in found[1:]] == ["'=1+1", "-2", "'@sum", "'+x", "plain"]
    assert found[1][1] == "-1"
    tables.write(pa.table({"=label": labels}), tmp_path / "t.parquet")
    assert tables.read(tmp_path / "t.parquet").table["=label"].to_pylist() == labels
