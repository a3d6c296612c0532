import contextlib
import sqlite3

import pytest

import tunbridge as tb
from tunbridge.bench.benchmark.store import Store

ROW = {
    **{"suite": "s", "task": "t", "split": 0, "method": "map", "key": 0, "status": "done", "error": None},
    **{"kind": "numbers", "settings": {"rate": 0.1}, "train_rows": 9, "test_rows": 1, "figures": {"NLL": 0.1}},
    **{"cost": {"seconds": 0.5}, "curves": {"a": {"x": [1.0], "y": [2.0]}}, "provenance": {"versions": ["a 1"]}},
}


def test_rows_come_back_as_they_were_given(tmp_path):
    failed = ROW | {"method": "nuts", "status": "failed", "error": "no", "figures": {}}
    with Store(tmp_path / "r.sqlite", {"tune": True}) as store:
        store.add(failed)
        store.add(ROW)
        assert store.done() == {("s", "t", 0, "map", 0), ("s", "t", 0, "nuts", 0)}
    with Store(tmp_path / "r.sqlite") as store:
        assert store.rows() == [ROW, failed]


def test_a_row_made_again_takes_the_place_of_the_old(tmp_path):
    with Store(tmp_path / "r.sqlite", {}) as store:
        store.add(ROW)
        store.add(ROW | {"train_rows": 8})
        assert [row["train_rows"] for row in store.rows()] == [8]


def test_rows_by_other_rules_are_not_mixed(tmp_path):
    with Store(tmp_path / "r.sqlite", {"tune": True}):
        pass
    with pytest.raises(tb.InputError, match="tune True, by which"):
        Store(tmp_path / "r.sqlite", {"tune": False})


def test_what_is_no_store_is_said(tmp_path):
    with pytest.raises(tb.InputError, match="where there is none"):
        Store(tmp_path / "r.sqlite")
    (tmp_path / "text.sqlite").write_text("these are words " * 100)
    with pytest.raises(tb.LoadError, match="cannot be read as results"):
        Store(tmp_path / "text.sqlite", {})
    with Store(tmp_path / "new.sqlite", {}):
        pass
    with contextlib.closing(sqlite3.connect(tmp_path / "new.sqlite", isolation_level=None)) as base:
        base.execute("UPDATE facts SET value = '99' WHERE name = 'format'")
    with pytest.raises(tb.LoadError, match="newer Tunbridge"):
        Store(tmp_path / "new.sqlite")


def test_a_figure_that_was_changed_is_noticed(tmp_path):
    with Store(tmp_path / "r.sqlite", {}) as store:
        store.add(ROW)
    with contextlib.closing(sqlite3.connect(tmp_path / "r.sqlite", isolation_level=None)) as base:
        base.execute("UPDATE rows SET figures = replace(figures, '0.1', '0.2')")
    with Store(tmp_path / "r.sqlite") as store, pytest.raises(tb.LoadError, match=r"'map', 0.* has changed since"):
        store.rows()
