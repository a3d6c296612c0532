"""The format of a text file that holds a table: its encoding, its separator, and the lines on which rows begin."""

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
"""Candidate separators and their names, in order of preference where several fit."""
SEPARATORS = {".csv": ",", ".tsv": "\t"}
"""The separator that the suffix of a file name stands for."""
_BLOCK = 2**20
_LOOKED_AT = 50
"""Number of lines from which the separator is detected."""


@dataclasses.dataclass(frozen=True)
class Dialect:
    """The encoding and the separator of a text file.

    Parameters
    ----------
    encoding
        "utf-8", "utf-16", or "cp1252", which includes all printable characters of latin-1.
    separator
        The character between two cells.
    usual
        Whether the separator is the one that the suffix of the file name stands for.
    """

    encoding: str = "utf-8"
    separator: str = ","
    usual: bool = True

    @classmethod
    def of(cls, path: Path) -> "Dialect":
        """Detect the dialect of a file; InputError if its text cannot be decoded."""
        encoding = _encoding(path)
        default = SEPARATORS[path.suffix.lower()]
        separator = _separator(path, encoding, default)
        return cls(encoding, separator, separator == default)

    @property
    def notes(self) -> list[str]:
        """Sentences for the user on an encoding or a separator that is not the usual one."""
        sentences = []
        if self.encoding == "cp1252":
            sentences.append("Its text is read as Windows-1252 (latin-1), as it is not valid UTF-8.")
        if not self.usual:
            sentences.append(f"Its cells are separated by {_WORDS[self.separator]}.")
        return sentences


def _encoding(path: Path) -> str:
    with open(path, "rb") as file:
        marked = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    for name in ("utf-16",) if marked else ("utf-8", "cp1252"):
        line = _first_undecodable_line(path, name)
        if line is None:
            return name
    raise InputError(
        "text in UTF-8, UTF-16 or latin-1",
        f"{path} with a byte in line {line} that none of them allows",
        "Save the file as UTF-8.",
    )


def _first_undecodable_line(path: Path, encoding: str) -> int | None:
    """The line of the first byte that an encoding cannot decode; None if it decodes the whole file."""
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


def _separator(path: Path, encoding: str, default: str) -> str:
    """The separator that splits the first rows into equally many cells, and most; else into most column names."""
    with _opened(path, encoding) as file:
        head = list(itertools.islice(file, _LOOKED_AT))
    best, separator = (False, 1), default
    for candidate in _WORDS:
        try:
            counts = [len(row) for row in csv.reader(head, delimiter=candidate) if row]
        except csv.Error:
            continue
        if len(head) == _LOOKED_AT:
            counts = counts[:-1]  # the last row may continue on the next line
        if counts and (score := (len(set(counts)) == 1 and counts[0] > 1, counts[0])) > best:
            best, separator = score, candidate
    return separator


def _opened(path: Path, encoding: str) -> TextIO:
    return open(path, newline="", encoding="utf-8-sig" if encoding == "utf-8" else encoding)


def _records(path: Path, dialect: Dialect) -> Iterator[tuple[int, int]]:
    """Yield (line on which it begins, number of cells) for every row, column names first; empty lines are skipped.

    The rows end early at a cell of more than 100,000 characters, which Arrow reads but Python does not.
    """
    with _opened(path, dialect.encoding) as file, contextlib.suppress(csv.Error):
        reader, line = csv.reader(file, delimiter=dialect.separator), 1
        for row in reader:
            if row:
                yield line, len(row)
            line = reader.line_num + 1


def lines(path: Path, dialect: Dialect, rows: Sequence[int]) -> list[int] | None:
    """Return the lines of a file on which `rows` begin (row 0 follows the column names); None if any is not found."""
    row_numbers, line_of_row = set(rows), {}
    for number, (line, _) in enumerate(_records(path, dialect), start=-1):
        if number in row_numbers:
            line_of_row[number] = line
            if len(line_of_row) == len(row_numbers):
                break
    return [line_of_row[row] for row in rows] if len(line_of_row) == len(row_numbers) else None


def refuse_ragged(path: Path, dialect: Dialect) -> None:
    """Raise InputError for the first line with more or fewer cells than there are column names, if there is one."""
    records = _records(path, dialect)
    _, names = next(records, (1, 0))
    for line, cells in records:
        if cells != names:
            raise InputError(
                f"{names} cells in every line of {path}, one per column name",
                f"{cells} in line {line}",
                f"Correct this line; a cell that holds {_WORDS[dialect.separator]} or line breaks needs quotes.",
            )
