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


def _connected(path):
    return contextlib.closing(sqlite3.connect(path, isolation_level=None))


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
    with pytest.raises(tb.InputError, match="Name a file in it"):
        Store(tmp_path, {})
    with pytest.raises(tb.InputError, match="where there is none"):
        Store(tmp_path / "r.sqlite")
    (tmp_path / "text.sqlite").write_text("these are words " * 100)
    with pytest.raises(tb.LoadError, match="cannot be read as results"):
        Store(tmp_path / "text.sqlite", {})
    with Store(tmp_path / "new.sqlite", {}):
        pass
    with _connected(tmp_path / "new.sqlite") as base:
        base.execute("UPDATE facts SET value = '99' WHERE name = 'format'")
    with pytest.raises(tb.LoadError, match="newer Tunbridge"):
        Store(tmp_path / "new.sqlite")


def test_a_figure_that_was_changed_is_noticed(tmp_path):
    with Store(tmp_path / "r.sqlite", {}) as store:
        store.add(ROW)
    with _connected(tmp_path / "r.sqlite") as base:
        base.execute("UPDATE rows SET figures = replace(figures, '0.1', '0.2')")
    with Store(tmp_path / "r.sqlite") as store, pytest.raises(tb.LoadError, match=r"'map', 0.* has changed since"):
        store.rows()


def test_a_file_that_another_connection_holds_is_busy(tmp_path):
    path = tmp_path / "r.sqlite"
    with Store(path, {}) as store, _connected(path) as other:
        store._base.execute("PRAGMA busy_timeout = 0")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(tb.BusyError, match=r"r.sqlite is in use .* Wait"):
            store.add(ROW)
        other.execute("COMMIT")
        store.add(ROW)
        assert store.rows() == [ROW]


def test_results_are_read_while_another_connection_writes(tmp_path):
    path = tmp_path / "r.sqlite"
    with Store(path, {"tune": True}) as store:
        store.add(ROW)
    with _connected(path) as other:
        other.execute("BEGIN IMMEDIATE")
        with Store(path, {"tune": True}) as store:
            assert store.rows() == [ROW]


def test_a_file_that_cannot_be_written_is_an_oserror_that_advises_no_deletion(tmp_path):
    with Store(tmp_path / "r.sqlite", {}) as store:
        store._base.execute("PRAGMA query_only = 1")
        with pytest.raises(PermissionError, match=r"r.sqlite") as told:
            store.add(ROW)
        assert "delete" not in str(told.value)
    with pytest.raises(FileNotFoundError, match=r"missing"):
        Store(tmp_path / "missing" / "r.sqlite", {})


@pytest.mark.parametrize(
    "schema",
    [
        "CREATE TABLE mine (a)",
        "CREATE TABLE facts (name, value); CREATE TABLE rows (a)",
        "CREATE TABLE facts (mine); CREATE TABLE rows (a)",
        "CREATE TABLE facts (name, value); CREATE TABLE rows (a); CREATE TABLE mine (a)",
        "CREATE VIEW mine AS SELECT 1",
    ],
)
@pytest.mark.parametrize("rules", [None, {}])
def test_a_database_of_something_else_is_refused_unchanged(schema, rules, tmp_path):
    path = tmp_path / "own.sqlite"
    with _connected(path) as base:
        base.executescript(schema)
    before = path.read_bytes()
    with pytest.raises(tb.LoadError, match=r"own.sqlite is a database of something else .* Name another file\.$"):
        Store(path, rules)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_an_empty_file_becomes_a_store(tmp_path):
    (tmp_path / "r.sqlite").touch()
    with Store(tmp_path / "r.sqlite", {}) as store:
        assert store.rows() == []
