import io
import sys

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
    bar._bar.live.console = Console(file=(screen := io.StringIO()), force_terminal=True, width=120)
    with bar:
        bar.resume(10)
        bar.update(50, {"loss": 1.25})
    text = screen.getvalue()
    assert "MAP" in text
    assert "50/100" in text
    assert "steps/s" in text
    assert "loss 1.25" in text
