"""How a text file of a table is written: its encoding, its separator, and the lines on which its rows begin."""

import codecs
import contextlib
import csv
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from tunbridge.core.errors import InputError

_WORDS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
"""In the order in which they are believed where several would do."""
SEPARATORS = {".csv": ",", ".tsv": "\t"}
"""What the name of a file promises."""
_BLOCK = 2**20
_LOOKED_AT = 50
"""Lines that the separator is found from."""


@dataclasses.dataclass(frozen=True)
class Dialect:
    """How a file is written.

    Parameters
    ----------
    encoding
        Of its letters: "utf-8", "utf-16", or "cp1252", which holds all of latin-1 that is printed.
    separator
        What stands between two cells.
    usual
        Whether the separator is the one that the name of the file promises.
    """

    encoding: str = "utf-8"
    separator: str = ","
    usual: bool = True

    @classmethod
    def of(cls, path: Path) -> "Dialect":
        """Found from a file; InputError where its letters cannot be read."""
        encoding = _encoding(path)
        own = SEPARATORS[path.suffix.lower()]
        separator = _separator(path, encoding, own)
        return cls(encoding, separator, separator == own)

    @property
    def notes(self) -> list[str]:
        """What a reader of the file would like to know."""
        said = []
        if self.encoding == "cp1252":
            said.append("Its letters are read as Windows-1252 (latin-1), as they are not UTF-8.")
        if not self.usual:
            said.append(f"Its cells are separated by {_WORDS[self.separator]}.")
        return said


def _encoding(path: Path) -> str:
    with open(path, "rb") as file:
        marked = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    for name in ("utf-16",) if marked else ("utf-8", "cp1252"):
        place = _first_strange(path, name)
        if place is None:
            return name
    raise InputError(
        "letters in UTF-8, UTF-16 or latin-1",
        f"{path} with a byte that is neither in line {place}",
        "Save the file as UTF-8.",
    )


def _first_strange(path: Path, encoding: str) -> int | None:
    """The line of the first byte that an encoding does not have."""
    decoder, lines = codecs.getincrementaldecoder(encoding)(), 1
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            try:
                decoder.decode(block)
            except UnicodeDecodeError as error:
                return lines + error.object[: error.start].count(b"\n")
            lines += block.count(b"\n")
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return lines
    return None


def _separator(path: Path, encoding: str, own: str) -> str:
    """The one by which the first rows have equally many cells, and most; else that of most names."""
    with _opened(path, encoding) as file:
        head = list(itertools.islice(file, _LOOKED_AT))
    best, separator = (False, 1), own
    for candidate in _WORDS:
        try:
            counts = [len(row) for row in csv.reader(head, delimiter=candidate) if row]
        except csv.Error:
            continue
        if len(head) == _LOOKED_AT:
            counts = counts[:-1]  # the last may go on in the next line
        if counts and (standing := (len(set(counts)) == 1 and counts[0] > 1, counts[0])) > best:
            best, separator = standing, candidate
    return separator


def _opened(path: Path, encoding: str) -> TextIO:
    return open(path, newline="", encoding="utf-8-sig" if encoding == "utf-8" else encoding)


def _records(path: Path, dialect: Dialect) -> Iterator[tuple[int, int]]:
    """(line on which it begins, number of cells) of every row, the names first; empty lines are none.

    They end early where Python reads less than Arrow: at a cell of more than 100,000 letters.
    """
    with _opened(path, dialect.encoding) as file, contextlib.suppress(csv.Error):
        reader, line = csv.reader(file, delimiter=dialect.separator), 1
        for row in reader:
            if row:
                yield line, len(row)
            line = reader.line_num + 1


def lines(path: Path, dialect: Dialect, rows: Sequence[int]) -> list[int] | None:
    """The lines of a file on which some rows begin, of which 0 comes after the names; None if they are not found."""
    wanted, found = set(rows), {}
    for number, (line, _) in enumerate(_records(path, dialect), start=-1):
        if number in wanted:
            found[number] = line
            if len(found) == len(wanted):
                break
    return [found[row] for row in rows] if len(found) == len(wanted) else None


def refuse_ragged(path: Path, dialect: Dialect) -> None:
    """InputError that names the first line with more or fewer cells than there are names."""
    records = _records(path, dialect)
    _, names = next(records, (1, 0))
    for line, cells in records:
        if cells != names:
            raise InputError(
                f"{names} cells in every line of {path}, as there are names",
                f"{cells} in line {line}",
                f"Mend this line; a cell that holds {_WORDS[dialect.separator]} or line breaks needs quotes.",
            )
