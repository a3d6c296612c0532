import datetime
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import tunbridge as tb
from tunbridge.datasets import table as tables
from tunbridge.datasets.encoding import Column, Encoding


def _csv(folder, text, name="data.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


READ = """
import sys
from pathlib import Path

import numpy as np
from tunbridge.cli.answers import _column
from tunbridge.datasets import table as tables
from tunbridge.datasets.encoding import Column

sheet = tables.read(Path(sys.argv[1]))
sheet.refuse_missing(["a", "b"])
print(Column("a").numbers(sheet.table["a"]).sum(), _column(np.arange(3.0))[2], "pandas" in sys.modules)
"""


def test_a_table_of_numbers_is_read_and_answered_without_importing_pandas(tmp_path):
    """PyArrow imports pandas for most conversions, which takes longer than the rest of reading."""
    pytest.importorskip("pandas")
    path = _csv(tmp_path, "a,b\n1,2.5\n2,3.5\n")
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3.0", "2.0", "False"]


def test_a_csv_and_the_parquet_of_it_are_the_same_table(tmp_path):
    table = tables.read(_csv(tmp_path, "a,größe,b\n1,x,2.5\n2,y,3.5\n")).table
    pyarrow.parquet.write_table(table, tmp_path / "data.parquet")
    assert tables.read(tmp_path / "data.parquet").table.equals(table)
    assert table.column_names == ["a", "größe", "b"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "readable csv"),
        ("a,b\n", "rows under a line of column names"),
        ("a,a,b\n1,2,3\n", "'a' more than once"),
        ("a,,b\n1,2,3\n", "none for column 2"),
        ("a,b\n1,2\n\n1,2,3\n", "2 cells in every line"),
        ("a,b\n1,2\n\n1,2,3\n", "one per column name; got 3 in line 4"),
        (b"a,b\n1,2\n\xe4\x81,2\n", "a byte in line 3 that none of them allows"),
    ],
)
def test_a_broken_csv_is_refused_in_a_sentence(text, sentence, tmp_path):
    path = _csv(tmp_path, text)
    with pytest.raises(tb.InputError) as caught:
        Encoding.of(tables.read(path).table, ["b"])
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_files_and_places_are_refused(tmp_path):
    (tmp_path / "data.parquet").write_text("not parquet")
    for path, sentence in (
        (tmp_path / "data.xlsx", "ends in .csv"),
        (tmp_path / "none.csv", "there is none"),
        (tmp_path / "data.parquet", "readable parquet"),
    ):
        with pytest.raises(tb.InputError, match=sentence):
            tables.read(path)


def test_missing_values_of_parquet_are_named_by_column_and_row():
    table = pa.table({"a": [1.0, None, float("nan"), float("inf")], "b": ["x", "y", None, "z"], "c": [1, 2, 3, 4]})
    with pytest.raises(tb.InputError, match=r"'a' \(rows 2, 3, 4; 3 in all\); 'b' \(row 3; 1 in all\).*--drop-missing"):
        tables.Sheet(table, Path("data.parquet")).refuse_missing(["a", "b", "c"])
    tables.Sheet(table, Path("data.parquet")).refuse_missing(["c"])
    whole, kept = tables.drop_missing(table, ["a", "b"])
    assert whole.num_rows == 1
    np.testing.assert_array_equal(kept, [0])


def test_numbers_categories_and_dates_become_numbers():
    when = [datetime.datetime(2026, 11, 15, 12, 0, i) for i in range(3)]
    table = pa.table(
        {"n": [1, 2, 3], "two": ["b", "a", "b"], "three": ["u", "v", "w"], "yes": [True, False, True], "when": when}
    )
    encoding = Encoding.of(table.append_column("y", pa.array([0.5, 1.5, 2.5])), ["y"])
    assert encoding.names == ["n", "two=b", "three=u", "three=v", "three=w", "yes=yes", "when"]
    x = encoding.x(table)
    np.testing.assert_array_equal(x[:, :6], [[1, 1, 1, 0, 0, 1], [2, 0, 0, 1, 0, 0], [3, 1, 0, 0, 1, 1]])
    np.testing.assert_array_equal(np.diff(x[:, 6]), [1.0, 1.0])
    assert encoding.task == "regression"


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (["a", "b", "a", "b"], "classification"),
        ([True, False, True, True], "classification"),
        ([5, 7, 5, 7], "classification"),
        ([0, 1, 2, 1], "classification"),
        ([3, 4, 5, 8], "regression"),
        ([0.5, 1.5, 1.0, 2.0], "regression"),
    ],
)
def test_a_class_and_a_number_are_told_apart(values, task):
    table = pa.table({"x": [1.0, 2.0, 3.0, 4.0], "y": values})
    assert Encoding.of(table, ["y"]).task == task
    other = "regression" if task == "classification" else "classification"
    if not isinstance(values[0], str | bool):
        assert Encoding.of(table, ["y"], task=other).task == other


def test_codes_may_be_read_as_categories():
    table = pa.table({"zip": [10, 20, 30, 10], "y": [1.0, 2.0, 3.0, 4.5]})
    assert Encoding.of(table, ["y"], categorical=("zip",)).names == ["zip=10", "zip=20", "zip=30"]


@pytest.mark.parametrize(
    ("table", "targets", "options", "sentence"),
    [
        ({"y": [1.0, 2.0]}, ["y"], {}, "a column besides the target"),
        ({"x": [1.0, 2.0], "y": ["a", "a"]}, ["y"], {}, "at least two classes"),
        ({"x": [1.0, 2.0], "y": [0.5, 0.5]}, ["y"], {}, "a target that varies; got 0.5 in every row of 'y'"),
        ({"x": [1.0, 2.0], "y": ["a", "b"]}, ["y"], {"task": "regression"}, "text in 'y'"),
        ({"x": [1.0, 2.0], "y": ["a", "b"], "z": [1.0, 2.0]}, ["y", "z"], {}, "one target that is a class"),
        ({"x": [[1], [2]], "y": [1.5, 2.0]}, ["y"], {}, r"list<.*in 'x'"),
        ({"x": [str(i) for i in range(200)], "y": [0.5 * i for i in range(200)]}, ["y"], {}, "200 in 'x'"),
    ],
)
def test_tables_that_cannot_be_learnt_from_are_refused(table, targets, options, sentence):
    with pytest.raises(tb.InputError, match=sentence):
        Encoding.of(pa.table(table), targets, **options)


def test_a_level_that_training_never_saw_is_named_with_its_row():
    column = Column.of("colour", pa.chunked_array([["red", "blue", "green"]]))
    with pytest.raises(tb.InputError, match=r"'colour'.*got 'mauve', first in row 2"):
        column.numbers(pa.chunked_array([["red", "mauve"]]))
    with pytest.raises(tb.InputError, match="numbers in 'n', as in training"):
        Column("n").numbers(pa.chunked_array([["red", "mauve"]]))


def test_a_date_is_not_a_number_at_prediction():
    column = Column.of("when", pa.chunked_array([[datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)]]))
    with pytest.raises(tb.InputError, match="dates in 'when', as in training; got int64"):
        column.numbers(pa.chunked_array([[20454, 20455]]))


def test_codes_are_read_letter_by_letter(tmp_path):
    """01 stays 01, also in a file where every code looks like a number."""
    table = tables.read(_csv(tmp_path, "code,y\n01,1.5\n02,2.5\nA3,3.5\n")).table
    encoding = Encoding.of(table, ["y"])
    assert encoding.text == ["code"]
    again = tables.read(_csv(tmp_path, "code\n02\n01\n", "more.csv"), encoding.text).table
    np.testing.assert_array_equal(encoding.x(again), [[0, 1, 0], [1, 0, 0]])


def test_dictionaries_of_a_parquet_file_are_their_values(tmp_path):
    columns = {"n": pa.array([3, 4, 3]).dictionary_encode(), "c": pa.array(["u", "v", "u"]).dictionary_encode()}
    pyarrow.parquet.write_table(pa.table({**columns, "y": [1.0, 2.0, 4.5]}), tmp_path / "data.parquet")
    encoding = Encoding.of(tables.read(tmp_path / "data.parquet").table, ["y"])
    assert encoding.features == (Column("n"), Column("c", ("u", "v")))


def test_an_encoding_comes_back_from_json_as_it_was():
    table = pa.table({"n": [1, 2, 3], "c": ["u", "v", "w"], "y": ["a", "b", "a"]})
    encoding = Encoding.of(table, ["y"])
    assert Encoding.from_json(json.loads(json.dumps(encoding.to_json()))) == encoding
    odd = [encoding.to_json() | {"task": "clastification"}, json.loads(json.dumps(encoding.to_json()))]
    odd[1]["features"][0]["date"] = "no"
    for wrong in (
        None,
        [],
        {"features": 1},
        {"features": [{"name": 1, "levels": []}], "targets": [], "task": "x"},
        *odd,
    ):
        with pytest.raises(tb.InputError, match="columns of a fit"):
            Encoding.from_json(wrong)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_a_table_is_written_whole_or_not_at_all(suffix, tmp_path):
    table = pa.table({"a": [1.5, 2.5], "b": ["x,y", 'q"']})
    tables.write(table, tmp_path / f"out{suffix}")
    assert tables.read(tmp_path / f"out{suffix}").table.equals(table)
    assert [path.name for path in tmp_path.iterdir()] == [f"out{suffix}"]
    with pytest.raises(tb.InputError, match="a folder to write into"):
        tables.write(table, tmp_path / "none" / f"out{suffix}")
    with pytest.raises(tb.InputError, match="ends in"):
        tables.write(table, tmp_path / "out.json")
