"""Self-contained HTML pages: embedded pictures, no scripts, no network access; all text from data is escaped."""

import base64
import html
import io
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from tunbridge.core.tables import Row, written

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1c2530; background: #fff; max-width: 62rem; margin: 2rem auto;
  padding: 0 1.2rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
p.verdict { font-size: 1.25rem; line-height: 1.4; margin: .4rem 0 .6rem; }
p.lead { color: #4b5563; margin-top: 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; margin: .8rem 0; }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid #e5e7eb; vertical-align: top; }
th:first-child, td:first-child, td.words, th.words { text-align: left; }
th { border-bottom: 2px solid #9ca3af; }
tr.best td { background: #eef4f8; font-weight: 600; }
img { max-width: 100%; height: auto; }
figure { margin: 1rem 0; } figcaption { font-size: .85rem; color: #4b5563; }
pre { background: #f3f4f6; padding: .6rem .8rem; overflow-x: auto; font-size: .85rem; }
ul.words li { margin: .3rem 0; }
"""


class Page:
    """An HTML page, built from top to bottom.

    Parameters
    ----------
    title
        The heading, and the title of the window.
    lead
        A sentence under the heading.
    verdict
        The main result, between heading and lead.
    """

    def __init__(self, title: str, lead: str, verdict: str = ""):
        self._title = title
        verdict_html = f'<p class="verdict">{html.escape(verdict)}</p>' if verdict else ""
        self._body = [f"<h1>{html.escape(title)}</h1>", verdict_html, f'<p class="lead">{html.escape(lead)}</p>']

    def heading(self, text: str) -> None:
        """Add the heading of a section."""
        self._body.append(f"<h2>{html.escape(text)}</h2>")

    def paragraph(self, text: str) -> None:
        """Add a paragraph."""
        self._body.append(f"<p>{html.escape(text)}</p>")

    def code(self, text: str) -> None:
        """Add a block of code, such as a command line."""
        self._body.append(f"<pre>{html.escape(text)}</pre>")

    def sentences(self, texts: Iterable[str]) -> None:
        """Add a bulleted list of sentences."""
        items = "".join(f"<li>{html.escape(text)}</li>" for text in texts)
        self._body.append(f'<ul class="words">{items}</ul>')

    def table(self, rows: Sequence[Row], best: int | None = None) -> None:
        """Add a table of text and numbers; the row with index `best` is highlighted."""
        words = [isinstance(value, str) for value in rows[0].values()]
        kinds = ['class="words"' if is_words else "" for is_words in words]
        head = "".join(f"<th {kind}>{html.escape(name)}</th>" for kind, name in zip(kinds, rows[0], strict=True))
        lines = []
        for i, row in enumerate(rows):
            values = zip(kinds, row.values(), strict=True)
            cells = "".join(f"<td {kind}>{html.escape(written(value))}</td>" for kind, value in values)
            lines.append(f'<tr class="best">{cells}</tr>' if i == best else f"<tr>{cells}</tr>")
        self._body.append(f'<div class="wide"><table><tr>{head}</tr>{"".join(lines)}</table></div>')

    def figure(self, figure: Any, caption: str) -> None:
        """Add a matplotlib figure with a caption, and close it."""
        import matplotlib.pyplot as plt

        buffer = io.BytesIO()
        with warnings.catch_warnings():  # characters that the font lacks are drawn as boxes
            warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
            figure.savefig(buffer, format="png", dpi=110, metadata={"Software": ""})
        plt.close(figure)
        data = base64.b64encode(buffer.getvalue()).decode()
        text = html.escape(caption, quote=True)
        self._body.append(
            f'<figure><img alt="{text}" src="data:image/png;base64,{data}"><figcaption>{text}</figcaption></figure>'
        )

    def html(self) -> str:
        """Return the whole page as HTML."""
        head = (
            '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
            "style-src 'unsafe-inline'\">"
            f"<title>{html.escape(self._title)}</title><style>{_STYLE}</style>"
        )
        return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(self._body)}</body></html>\n'


def subplots(*shape: int, size: tuple[float, float]) -> tuple[Any, Any]:
    """A matplotlib figure for a page, and its axes as a flat array."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(*shape, figsize=size, layout="constrained", squeeze=False)
    return figure, axes.ravel()


def plain(text: str, most: int = 40) -> str:
    """Text that matplotlib draws literally: no formulas between dollar signs, and cut to `most` characters."""
    shown = text if len(text) <= most else text[: most - 1] + "…"
    return "".join(" " if ord(character) < 32 else character for character in shown).replace("$", r"\$")
