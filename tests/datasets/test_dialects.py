"""Files as people export them: encodings, separators, decimal commas, dates; and the first cell that is wrong."""

import datetime

import numpy as np
import pyarrow as pa
import pytest

import tunbridge as tb
from tunbridge.datasets import table as tables
from tunbridge.datasets.cells import Conventions
from tunbridge.datasets.encoding import Column, Encoding


def written(folder, text, name="data.csv", encoding="utf-8"):
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


def columns(folder, content, **options):
    return tables.read(written(folder, content), **options).table.to_pydict()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252", "latin-1"])
def test_letters_are_read_in_the_encoding_of_the_file(encoding, tmp_path):
    path = written(tmp_path, "größe,ort\n1,Köln\n2,Málaga\n", encoding=encoding)
    sheet = tables.read(path)
    assert sheet.table.to_pydict() == {"größe": [1, 2], "ort": ["Köln", "Málaga"]}
    told = encoding in ("cp1252", "latin-1")
    assert sheet.notes == (("Its text is read as Windows-1252 (latin-1), as it is not valid UTF-8.",) if told else ())
    assert tables.read(path, ["größe"]).table["größe"].to_pylist() == ["1", "2"]


def test_latin_letters_are_found_wherever_they_stand(tmp_path):
    text = "a,b\n" + "1,x\n" * 300_000 + "2,ü\n"
    assert tables.read(written(tmp_path, text, encoding="latin-1")).table["b"][-1].as_py() == "ü"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a;b;c\n1;x,y;2\n3;z;4\n", "data.csv"),
        ("a\tb\tc\n1\tx,y\t2\n3\tz\t4\n", "data.csv"),
        ("a|b|c\n1|x,y|2\n3|z|4\n", "data.csv"),
        ("a,b,c\n1,x;y,2\n3,z,4\n", "data.tsv"),
        ('a,"b",c\n1,"x,y",2\n3,"z\n;;;",4\n', "data.csv"),
        ("a;b;c\n1;x,y;2\n3;z;4\n5;6\n", "data.csv"),
    ],
)
def test_the_separator_is_found_from_the_first_rows(text, name, tmp_path):
    path = written(tmp_path, text, name)
    if text.endswith("5;6\n"):
        with pytest.raises(tb.InputError, match=r"3 cells in every line of .*; got 2 in line 4\. .*semicolons"):
            tables.read(path)
        return
    table = tables.read(path).table
    assert table.column_names == ["a", "b", "c"]
    assert table["c"].to_pylist() == [2, 4]


def test_an_unusual_separator_is_noted(tmp_path):
    assert tables.read(written(tmp_path, "a;b\n1;2\n")).notes == ("Its cells are separated by semicolons.",)
    assert tables.read(written(tmp_path, "a,b\n1,2\n")).notes == ()


@pytest.mark.parametrize(
    ("text", "a"),
    [
        ("a;b\n1,5;x\n-2,25;y\n", [1.5, -2.25]),
        ('a,b\n"1,5",x\n3,y\n', [1.5, 3.0]),
        ("a;b\n1.234,5;x\n12;y\n", [1234.5, 12.0]),
        ("a;b\n1.234.567;x\n12;y\n", [1234567, 12]),
        ('a,b\n"1,234,567.5",x\n12,y\n', [1234567.5, 12.0]),
        ("a;b\n1,5e3;x\n,5;y\n", [1500.0, 0.5]),
        ("a;b\n1,5;x\n;y\n", [1.5, None]),
        ("a;b\n1,234;x\n2,500;1,5\n", [1.234, 2.5]),
    ],
)
def test_numbers_may_have_decimal_commas(text, a, tmp_path):
    assert columns(tmp_path, text)["a"] == a


def test_numbers_that_may_mean_two_things_follow_a_rule_and_are_noted(tmp_path):
    sheet = tables.read(written(tmp_path, "a;b\n1,234;x\n12;y\n"))
    assert sheet.table["a"].to_pylist() == [1.234, 12.0]
    assert "Numbers of 'a' may mean two things: 1,234 is read as 1.234." in sheet.notes
    sheet = tables.read(written(tmp_path, 'a,b\n"1,234",x\n12,y\n'))
    assert sheet.table["a"].to_pylist() == [1234, 12]
    assert sheet.notes == ("Numbers of 'a' may mean two things: 1,234 is read as 1234.",)


def test_other_columns_tell_what_a_comma_means(tmp_path):
    sheet = tables.read(written(tmp_path, 'a,b\n"1,234","0,5"\n12,"1,75"\n'))
    assert sheet.table.to_pydict() == {"a": [1.234, 12.0], "b": [0.5, 1.75]}
    sheet = tables.read(written(tmp_path, "a;b\n1,234;0.5\n12;1.75\n"))
    assert sheet.table.to_pydict() == {"a": [1234, 12], "b": [0.5, 1.75]}
    assert sheet.conventions.decimal_comma is False


def test_points_part_thousands_where_commas_are_decimal(tmp_path):
    sheet = tables.read(written(tmp_path, "a;b\n1.234;0,5\n999;1,75\n"))
    assert sheet.table["a"].to_pylist() == [1234, 999]
    assert "points in 'a' separate thousands: 1.234 is 1234." in sheet.notes[-1]
    assert columns(tmp_path, "a;b\n1.25;0,5\n999;1,75\n")["a"] == [1.25, 999.0]


def test_an_earlier_file_tells_what_cells_mean(tmp_path):
    like = Conventions(decimal_comma=True, day_first=False)
    sheet = tables.read(written(tmp_path, 'a,when\n"1,234",01/02/2020\n'), like=like)
    assert sheet.table["a"].to_pylist() == [1.234]
    assert sheet.table["when"].to_pylist() == [datetime.datetime(2020, 1, 2)]
    assert sheet.notes == ()
    assert Conventions.from_json(like.to_json()) == like
    for wrong in (None, {}, {"decimal_comma": True}, {"decimal_comma": 1, "day_first": None}):
        with pytest.raises(tb.InputError, match="conventions of a fit"):
            Conventions.from_json(wrong)


@pytest.mark.parametrize(
    ("cells", "first", "told"),
    [
        (["31/12/2020", "01/02/2020"], datetime.datetime(2020, 12, 31), True),
        (["31.12.2020", "1.2.2020"], datetime.datetime(2020, 12, 31), True),
        (["1.2.2020", "3.4.2021"], datetime.datetime(2020, 2, 1), True),
        (["12/31/2020", "01/02/2020"], datetime.datetime(2020, 12, 31), False),
        (["31-12-2020 14:05", "01-02-2020 09:00"], datetime.datetime(2020, 12, 31, 14, 5), True),
        (["2020/12/31", "2020/01/02"], datetime.datetime(2020, 12, 31), True),
        (["29.02.2020 00:00:59", ""], datetime.datetime(2020, 2, 29, 0, 0, 59), True),
    ],
)
def test_dates_have_the_day_or_the_month_first(cells, first, told, tmp_path):
    sheet = tables.read(written(tmp_path, "when,y\n" + "".join(f"{cell},1\n" for cell in cells)))
    assert sheet.table["when"][0].as_py() == first
    assert pa.types.is_timestamp(sheet.table["when"].type)
    assert sheet.conventions.day_first is told
    assert sheet.notes == ()
    assert Column.of("when", sheet.table["when"].drop_null()).date


def test_dates_that_may_mean_two_things_have_the_day_first_and_are_noted(tmp_path):
    sheet = tables.read(written(tmp_path, "when,y\n01/02/2020,1\n03/04/2020,2\n"))
    assert sheet.table["when"].to_pylist() == [datetime.datetime(2020, 2, 1), datetime.datetime(2020, 4, 3)]
    assert sheet.notes == ("Dates of 'when' may mean two things: 01/02/2020 is read with the day first.",)
    sheet = tables.read(written(tmp_path, "when,then\n01/02/2020,12/31/2020\n03/04/2020,01/01/2020\n"))
    assert sheet.table["when"][0].as_py() == datetime.datetime(2020, 1, 2)
    assert sheet.notes == ()


def test_text_that_resembles_numbers_and_dates_stays_text(tmp_path):
    text = "v;phone;ip;code\n1.2.3;+49 30;10.0.0.1;A,5\n1.2.4;+49 40;10.0.0.2;B,5\n"
    assert columns(tmp_path, text)["v"] == ["1.2.3", "1.2.4"]
    assert columns(tmp_path, text)["ip"] == ["10.0.0.1", "10.0.0.2"]
    assert columns(tmp_path, text)["code"] == ["A,5", "B,5"]
    assert columns(tmp_path, "a;b\n1,5;x\n2,5;y\n", text=["a"])["a"] == ["1,5", "2,5"]


ROWS = "".join(f"{i}.5,{i + 10}.12.2020,x\n" for i in range(1, 20))


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("12x,24.12.2020,x", "a number in every cell of 'n', as its other cells are; got '12x' in line 21 of data.csv"),
        ('1.5,24.12.2020,"x\ny"\n?,24.12.2020,x', "'?' in line 23"),
        ("1.5,31.02.2020,x", "a date in every cell of 'when', as its other cells are; got '31.02.2020' in line 21"),
        ("1.5,soon,x", "got 'soon' in line 21"),
    ],
)
def test_the_first_cell_that_is_wrong_is_named_by_line_and_column(row, sentence, tmp_path):
    sheet = tables.read(written(tmp_path, f"n,when,c\n{ROWS}{row}\n"))
    with pytest.raises(tb.InputError) as caught:
        sheet.refuse_odd(dict.fromkeys(["n", "when", "c"]))
    assert sentence in str(caught.value)
    assert "--categorical" in str(caught.value)
    sheet.refuse_odd(dict.fromkeys(["c"]))


def test_a_mixed_order_of_day_and_month_names_the_cell(tmp_path):
    cells = ["31/12/2020"] * 19 + ["12/31/2020"]
    sheet = tables.read(written(tmp_path, "when,y\n" + "".join(f"{cell},1\n" for cell in cells)))
    with pytest.raises(tb.InputError, match=r"'12/31/2020' in line 21 of data\.csv"):
        sheet.refuse_odd({"when": None})


def test_at_prediction_the_first_cell_that_is_no_number_is_named(tmp_path):
    sheet = tables.read(written(tmp_path, "n,when\nred,soon\nblue,01.01.2020\n"))
    encoding = Encoding((Column("n"), Column("when", date=True)), (), "regression")
    with pytest.raises(tb.InputError, match="a number in every cell of 'n', as in training; got 'red' in line 2"):
        sheet.refuse_odd(encoding.kinds)
    with pytest.raises(tb.InputError, match="a date in every cell of 'when', as in training; got 'soon' in line 2"):
        sheet.refuse_odd({"when": encoding.kinds["when"]})


def test_missing_values_of_text_are_named_by_line(tmp_path):
    sheet = tables.read(written(tmp_path, 'a,b\n1,"x\ny"\n\n,z\n3,\n'))
    with pytest.raises(tb.InputError, match=r"'a' \(line 5; 1 in all\); 'b' \(line 6; 1 in all\)"):
        sheet.refuse_missing(["a", "b"])


def test_a_cell_that_python_cannot_read_leaves_the_number_of_the_row(tmp_path):
    sheet = tables.read(written(tmp_path, f"a,b\n1,{'x' * 200_000}\n,y\n"))
    with pytest.raises(tb.InputError, match=r"'a' \(row 2; 1 in all\)"):
        sheet.refuse_missing(["a", "b"])


@pytest.mark.slow
def test_many_rows_are_read_by_columns(tmp_path):
    """Text columns are looked at with Arrow, never cell by cell: decimal commas and dates over all rows."""
    num = 200_000
    rng = np.random.default_rng(0)
    a = np.char.replace(np.char.mod("%.3f", rng.normal(size=num)), ".", ",")
    days = np.char.mod("%02d", rng.integers(1, 29, num))
    lines = [f"{x};{d}/03/2020;{c}" for x, d, c in zip(a, days, rng.choice(["u", "v"], num), strict=True)]
    table = tables.read(written(tmp_path, "a;when;c\n" + "\n".join(lines) + "\n")).table
    assert [str(field.type) for field in table.schema] == ["double", "timestamp[s]", "string"]
    assert table.num_rows == num
