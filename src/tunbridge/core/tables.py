"""Rows of figures as tables, with sentences below: for a terminal, a notebook (HTML), a document (Markdown), CSV."""

import csv
import dataclasses
import html
import io
import itertools
import math
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
_WIDEST = 140
"""Characters of a line of a table as text, where the terminal has as many or there is none."""
_NARROWEST, _LONGEST_NAME = 12, 40
"""Characters that a column of words keeps, and beyond which a name is folded too."""


class Table:
    """What has `rows` of figures and `sentences` about them, and shows as a table wherever it is printed."""

    caption: Any
    """What a notebook writes above it."""
    rows: Any
    sentences: Any

    def __rich__(self):
        """A table for rich."""
        return to_rich(self.rows, self.sentences)

    def __str__(self) -> str:
        return to_text(self.rows, self.sentences)

    def _repr_html_(self) -> str:
        return to_html(self.rows, self.caption, self.sentences)

    def to_markdown(self) -> str:
        """A table of Markdown, with the sentences below."""
        return to_markdown(self.rows, self.sentences)

    def to_csv(self) -> str:
        """Names, then a line a row, numbers with all their digits; without the sentences."""
        return to_csv(self.rows)


@dataclasses.dataclass(frozen=True)
class Listing(Table):
    """A table with a caption of its own."""

    caption: str
    rows: Sequence[Row]
    sentences: Sequence[str] = ()


class Tables:
    """What is several tables, one below another, each under its caption."""

    tables: Any

    def __rich__(self):
        """The tables for rich."""
        from rich.console import Group
        from rich.text import Text

        return Group(*(part for each in self.tables for part in (Text(each.caption), each.__rich__())))

    def __str__(self) -> str:
        return "\n".join(f"{each.caption}\n{each}" for each in self.tables)

    def _repr_html_(self) -> str:
        return "".join(each._repr_html_() for each in self.tables)

    def to_markdown(self) -> str:
        """The tables in Markdown, each under its caption."""
        return "\n".join(f"**{_markdown(each.caption)}**\n\n{each.to_markdown()}" for each in self.tables)


def to_rich(rows: Sequence[Row], sentences: Sequence[str] = (), widths: Mapping[str, int] | None = None) -> Any:
    """What `rich` prints: words to the left, numbers to the right; columns of given widths are never narrower."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for name, value in rows[0].items():
        justify: Any = "left" if isinstance(value, str) else "right"
        table.add_column(name, justify=justify, overflow="fold", width=(widths or {}).get(name))
    for row in rows:
        table.add_row(*(Text(written(value)) for value in row.values()))
    return Group(table, *map(Text, sentences))


def to_text(rows: Sequence[Row], sentences: Sequence[str] = ()) -> str:
    """What a terminal shows: words are folded to its width, numbers and the names in the first column never."""
    from rich.console import Console

    room = min(_WIDEST, shutil.get_terminal_size((_WIDEST, 24)).columns)
    for fold_heads in (False, True):
        widths = _whole(rows, fold_heads)
        frame, words = 3 * len(rows[0]) + 1, _NARROWEST * (len(rows[0]) - len(widths))
        least = frame + words + sum(widths.values())
        if least <= room:
            break
    console = Console(file=(page := io.StringIO()), width=max(least, room), force_jupyter=False)
    console.print(to_rich(rows, sentences, widths))
    return page.getvalue()


def _whole(rows: Sequence[Row], fold_heads: bool) -> dict[str, int]:
    """Widths that keep names in the first column, and numbers, in one piece; of heads, perhaps single words."""
    from rich.cells import cell_len

    widths = {}
    for place, (name, value) in enumerate(rows[0].items()):
        if place == 0 or not isinstance(value, str):
            heads = name.split() if fold_heads else [name]
            longest = max(cell_len(text) for text in (*heads, *(written(row[name]) for row in rows)))
            widths[name] = min(longest, _LONGEST_NAME)
    return widths


def to_html(rows: Sequence[Row], caption: str, sentences: Sequence[str] = ()) -> str:
    """A plain table and paragraphs, everything in them escaped.

    Examples
    --------
    >>> to_html([{"a": "<b>", "c": 0.25}], "one row")
    '<table><caption>one row</caption><tr><th>a</th><th>c</th></tr><tr><td>&lt;b&gt;</td><td>0.25</td></tr></table>'
    """
    head = "".join(f"<th>{html.escape(name)}</th>" for name in (rows[0] if rows else ()))
    body = "".join(f"<tr>{_cells(row)}</tr>" for row in rows)
    below = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences)
    return f"<table><caption>{html.escape(caption)}</caption><tr>{head}</tr>{body}</table>{below}"


def to_markdown(rows: Sequence[Row], sentences: Sequence[str] = ()) -> str:
    r"""A table of Markdown and paragraphs; what comes from data makes no cells or tags of its own.

    Examples
    --------
    >>> print(to_markdown([{"a": "x|y", "c": 0.25}]))
    | a | c |
    | --- | ---: |
    | x\|y | 0.25 |
    <BLANKLINE>
    """
    kinds = ["---" if isinstance(value, str) else "---:" for value in rows[0].values()]
    lines = [[_markdown(name) for name in rows[0]], kinds]
    lines += [[_markdown(written(value)) for value in row.values()] for row in rows]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return table + "".join(f"\n{_markdown(sentence)}\n" for sentence in sentences)


def _markdown(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|").replace("*", r"\*").replace("<", "&lt;")


def to_csv(rows: Sequence[Row]) -> str:
    """Names, then a line a row.

    Examples
    --------
    >>> print(to_csv([{"a": "x, y", "c": 0.25}]), end="")
    a,c
    "x, y",0.25
    """
    page = io.StringIO()
    table = csv.writer(page, lineterminator="\n")
    for row in (rows[0], *(row.values() for row in rows)):
        table.writerow(map(harmless, row))
    return page.getvalue()


def harmless(cell: Any) -> Any:
    """A cell that no spreadsheet takes for a formula: text that begins like one gets an apostrophe in front.

    Examples
    --------
    >>> harmless("=cmd()"), harmless("-1.5"), harmless("a=b")
    ("'=cmd()", '-1.5', 'a=b')
    """
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def distinct(names: Sequence[str]) -> list[str]:
    """The names, with a number behind one that has come before.

    Examples
    --------
    >>> distinct(["row", "mean", "row"])
    ['row', 'mean', 'row (2)']
    """
    found: list[str] = []
    for name in names:
        number = next(n for n in itertools.count(1) if (name if n == 1 else f"{name} ({n})") not in found)
        found.append(name if number == 1 else f"{name} ({number})")
    return found


def _cells(row: Row) -> str:
    return "".join(f"<td>{html.escape(written(value))}</td>" for value in row.values())


def written(value: Any) -> str:
    """Words as they are, numbers to four digits, a dash where there is none."""
    if isinstance(value, float) and math.isnan(value):
        return "-"
    return value if isinstance(value, str) else f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
