"""Tables of results with sentences below them: for a terminal, a notebook (HTML), a document (Markdown) or CSV."""

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
"""Maximum width of a table as text, in characters; also the width where there is no terminal."""
_NARROWEST, _LONGEST_NAME = 12, 40
"""Minimum width of a column of words, and the length beyond which names in the first column are folded too."""


class Table:
    """Base of results with `rows` and `sentences` about them, which print as a table in terminals and notebooks."""

    caption: Any
    """The caption above the table in a notebook."""
    rows: Any
    sentences: Any

    def __rich__(self):
        """Return the table and its sentences as a `rich` renderable."""
        return to_rich(self.rows, self.sentences)

    def __str__(self) -> str:
        return to_text(self.rows, self.sentences)

    def _repr_html_(self) -> str:
        return to_html(self.rows, self.caption, self.sentences)

    def to_markdown(self) -> str:
        """Return the table in Markdown, with the sentences below."""
        return to_markdown(self.rows, self.sentences)

    def to_csv(self) -> str:
        """Return the table as CSV with all digits of the numbers, without the sentences."""
        return to_csv(self.rows)


@dataclasses.dataclass(frozen=True)
class Listing(Table):
    """A table with a caption of its own."""

    caption: str
    rows: Sequence[Row]
    sentences: Sequence[str] = ()


class Tables:
    """Base of results that are several tables, shown one below another, each under its caption."""

    tables: Any

    def __rich__(self):
        """Return the tables as a `rich` renderable."""
        from rich.console import Group
        from rich.text import Text

        return Group(*(part for table in self.tables for part in (Text(table.caption), table.__rich__())))

    def __str__(self) -> str:
        return "\n".join(f"{table.caption}\n{table}" for table in self.tables)

    def _repr_html_(self) -> str:
        return "".join(table._repr_html_() for table in self.tables)

    def to_markdown(self) -> str:
        """Return the tables in Markdown, each under its caption."""
        return "\n".join(f"**{_markdown(table.caption)}**\n\n{table.to_markdown()}" for table in self.tables)


def to_rich(rows: Sequence[Row], sentences: Sequence[str] = (), widths: Mapping[str, int] | None = None) -> Any:
    """Return a `rich` table: words left-aligned, numbers right-aligned; columns in `widths` have these widths."""
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
    """Return the table as text: words are folded to the terminal's width, numbers and first-column names are not."""
    from rich.console import Console

    room = min(_WIDEST, shutil.get_terminal_size((_WIDEST, 24)).columns)
    for fold_heads in (False, True):
        widths = _fixed_widths(rows, fold_heads)
        frame, words = 3 * len(rows[0]) + 1, _NARROWEST * (len(rows[0]) - len(widths))
        least = frame + words + sum(widths.values())
        if least <= room:
            break
    console = Console(file=(page := io.StringIO()), width=max(least, room), force_jupyter=False)
    console.print(to_rich(rows, sentences, widths))
    return page.getvalue()


def _fixed_widths(rows: Sequence[Row], fold_heads: bool) -> dict[str, int]:
    """Column widths that keep first-column names and numbers unfolded; headings may be folded between words."""
    from rich.cells import cell_len

    widths = {}
    for place, (name, value) in enumerate(rows[0].items()):
        if place == 0 or not isinstance(value, str):
            heads = name.split() if fold_heads else [name]
            longest = max(cell_len(text) for text in (*heads, *(written(row[name]) for row in rows)))
            widths[name] = min(longest, _LONGEST_NAME)
    return widths


def to_html(rows: Sequence[Row], caption: str, sentences: Sequence[str] = ()) -> str:
    """Return an HTML table and paragraphs, with all text escaped.

    Examples
    --------
    >>> to_html([{"a": "<b>", "c": 0.25}], "one row")
    '<table><caption>one row</caption><tr><th>a</th><th>c</th></tr><tr><td>&lt;b&gt;</td><td>0.25</td></tr></table>'
    """
    head = "".join(f"<th>{html.escape(name)}</th>" for name in (rows[0] if rows else ()))
    body = "".join(f"<tr>{_cells(row)}</tr>" for row in rows)
    paragraphs = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences)
    return f"<table><caption>{html.escape(caption)}</caption><tr>{head}</tr>{body}</table>{paragraphs}"


def to_markdown(rows: Sequence[Row], sentences: Sequence[str] = ()) -> str:
    r"""Return a Markdown table and paragraphs; text is escaped so that data cannot add cells or tags.

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
    """Return CSV: a line of column names, then one line per row.

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
    """Return a cell that no spreadsheet takes for a formula: text that begins like one gets a leading apostrophe.

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
    """Return the names with a number appended to each that occurred before, so that all differ.

    Examples
    --------
    >>> distinct(["row", "mean", "row"])
    ['row', 'mean', 'row (2)']
    """
    unique: list[str] = []
    for name in names:
        number = next(n for n in itertools.count(1) if (name if n == 1 else f"{name} ({n})") not in unique)
        unique.append(name if number == 1 else f"{name} ({number})")
    return unique


def _cells(row: Row) -> str:
    return "".join(f"<td>{html.escape(written(value))}</td>" for value in row.values())


def written(value: Any) -> str:
    """Format a cell: words unchanged, numbers to four significant digits, a dash for NaN."""
    if isinstance(value, float) and math.isnan(value):
        return "-"
    return value if isinstance(value, str) else f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
