import io
import sys

import IPython
import IPython.display
from rich.console import Console

import tunbridge as tb
from toys import model, table
from tunbridge.runtime.progress import Bar


def test_nothing_is_printed_where_there_is_no_terminal(key, capsys):
    tb.MAP(train=tb.Train(5)).fit(model(), table(), key=key)
    said = capsys.readouterr()
    assert said.out == said.err == ""


def test_a_terminal_sees_steps_rate_and_loss(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    bar = Bar("MAP", 100, show=True)
    bar._screen.bar.live.console = Console(file=(screen := io.StringIO()), force_terminal=True, width=120)
    with bar:
        bar.resume(10)
        bar.update(50, {"loss": 1.25})
    text = screen.getvalue()
    assert "MAP" in text
    assert "50/100" in text
    assert "steps/s" in text
    assert "loss 1.25" in text


def test_a_terminal_sees_at_once_that_a_program_is_being_compiled(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    bar = Bar("MAP", 100, show=True)
    bar._screen.bar.live.console = Console(file=(screen := io.StringIO()), force_terminal=True, width=120)
    with bar:
        begun = screen.getvalue()
        bar.resume(0)
        bar.update(50, {"loss": 1.25})
        bar._screen.bar.refresh()
        screen.truncate(screen.seek(0))
        bar._screen.bar.refresh()
        running = screen.getvalue()
    assert "MAP" in begun
    assert "0/100" in begun
    assert "compiling ..." in begun
    assert "compiling" not in running


def test_a_notebook_sees_the_same_and_is_left_clean(monkeypatch):
    shown = []

    class Handle:
        def update(self, thing):
            shown.append(thing.data)

    class ZMQInteractiveShell:
        pass

    monkeypatch.setattr(IPython, "get_ipython", ZMQInteractiveShell)
    monkeypatch.setattr(IPython.display, "display", lambda thing, display_id: Handle())
    with Bar("<MAP>", 100, show=True) as bar:
        bar.update(50, {"loss": 1.25})
    assert "&lt;MAP&gt; 0/100  compiling ..." in shown[0]
    assert "&lt;MAP&gt; 50/100" in shown[1]
    assert "steps/s" in shown[1]
    assert "s left" in shown[1]
    assert "loss 1.25" in shown[1]
    assert shown[-1] == ""


def test_a_fit_is_logged_and_a_resumed_one_too(key, tmp_path, caplog):
    caplog.set_level("INFO", "tunbridge")
    method = tb.MAP(train=tb.Train(30))
    method.fit(model(), table(), key=key, checkpoint=tmp_path, callbacks=[lambda event: True])
    method.fit(model(), table(), key=key, checkpoint=tmp_path).save(tmp_path / "saved")
    said = caplog.text
    for words in ("MAP begins", "MAP took", "resumed from", "of 30", "saved Point to"):
        assert words in said
