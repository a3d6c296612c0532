"""Print a table of code metrics of the package: ``python tools/house.py [FOLDER]``.

Lengths of files and functions, depth of inheritance, overrides of concrete methods, duplicated lines, public names, and
the files that mention a sampler by name, which a new sampler would have to touch.
"""

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
ALIKE = 8
"""Least number of equal consecutive lines that count as duplicated."""


class Class(NamedTuple):
    """A class of the package, as read from its source."""

    name: str
    bases: tuple[str, ...]
    defined: frozenset[str]
    """Methods and properties that are not abstract."""
    concrete: frozenset[str]
    """Those of them that compute something: not hooks, which only raise, or return a constant, self or an argument."""


def trees(folder: Path) -> dict[Path, ast.Module]:
    """Syntax tree of every file."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py"))}


def classes(found: dict[Path, ast.Module]) -> dict[str, Class]:
    """Every class by its name; the first of two with the same name."""
    table: dict[str, Class] = {}
    for tree in found.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases = tuple(_last(base) for base in node.bases)
                methods = list(_methods(node))
                concrete = frozenset(method.name for method in methods if not is_hook(method))
                defined = frozenset(method.name for method in methods)
                table.setdefault(node.name, Class(node.name, bases, defined, concrete))
    return table


def _last(node: ast.expr) -> str:
    """The last name of an expression such as `module.Class[int]`."""
    if isinstance(node, ast.Subscript):
        return _last(node.value)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _methods(node: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and not part.name.startswith("__"):
            marks = [_last(mark) for mark in part.decorator_list]
            if "abstractmethod" not in marks:
                yield part


def is_hook(function: ast.FunctionDef) -> bool:
    """Whether a function only raises, or returns constants, self or arguments: a default meant to be replaced."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    if not body or (len(body) == 1 and isinstance(body[0], ast.Raise)):
        return True
    if len(body) > 1 or not isinstance(body[0], ast.Return):
        return False
    arguments = {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
    names = {node.id for node in ast.walk(body[0]) if isinstance(node, ast.Name)}
    plain = (ast.Return, ast.Constant, ast.Name, ast.Tuple, ast.List, ast.Dict, ast.UnaryOp, ast.USub, ast.Load)
    return names <= arguments and all(isinstance(node, plain) for node in ast.walk(body[0]))


def functions(found: dict[Path, ast.Module]) -> list[int]:
    """Number of lines of every function and method, without decorators and docstring."""
    nodes = [node for tree in found.values() for node in ast.walk(tree)]
    return [_length(node) for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = node.body[0]
    written = first.end_lineno - first.lineno + 1 if ast.get_docstring(node) is not None else 0
    return node.end_lineno - node.lineno + 1 - written


def ancestors(name: str, table: dict[str, Class]) -> list[Class]:
    """The classes of the package that a class is derived from, nearest first."""
    found: list[Class] = []
    for base in table[name].bases:
        if base in table and base != name:
            found += [table[base], *ancestors(base, table)]
    return found


def depth(name: str, table: dict[str, Class]) -> int:
    """Depth of inheritance within the package, the class itself included."""
    above = [depth(base, table) for base in table[name].bases if base in table and base != name]
    return 1 + max(above, default=0)


def overrides(table: dict[str, Class]) -> list[tuple[str, str]]:
    """(class, method) for each method that overrides a concrete one."""
    return [
        (name, method)
        for name, one in table.items()
        for method in sorted(one.defined)
        if any(method in above.concrete for above in ancestors(name, table))
    ]


def twice(folder: Path) -> int:
    """Number of repeated windows of equal lines; imports and blank lines do not count."""
    seen: Counter[tuple[str, ...]] = Counter()
    for path in sorted(folder.rglob("*.py")):
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        lines = [line for line in lines if line and not line.startswith(("import ", "from ", "#", '"""', "@"))]
        seen.update({tuple(lines[i : i + ALIKE]) for i in range(len(lines) - ALIKE + 1)})
    return sum(count - 1 for count in seen.values() if count > 1)


def names(package: Path) -> int:
    """Number of names that the stubs of the package import."""
    imports = [
        alias.asname or alias.name
        for stub in package.rglob("*.pyi")
        for node in ast.walk(ast.parse(stub.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    return len(imports)


def touched(found: dict[Path, ast.Module], package: Path, sampler: str = "SGNHT") -> list[str]:
    """Files that mention a sampler, besides the one that defines it: those its author had to change."""
    places = []
    for path in (*found, *package.rglob("*.pyi")):
        tree = found.get(path) or ast.parse(path.read_text(encoding="utf-8"))
        nodes = list(ast.walk(tree))
        defines = any(isinstance(node, ast.ClassDef) and node.name == sampler for node in nodes)
        named = any(
            getattr(node, "id", None) == sampler
            or getattr(node, "attr", None) == sampler
            or (isinstance(node, ast.alias) and node.name == sampler)
            or (isinstance(node, ast.Constant) and node.value in (sampler, sampler.lower()))
            for node in nodes
        )
        if named and not defines:
            places.append(str(path.relative_to(package)))
    return places


def measured(package: Path) -> dict[str, int | float | str]:
    """Every metric of a package by its label."""
    found = trees(package)
    lengths = [len(path.read_text(encoding="utf-8").splitlines()) for path in found]
    table = classes(found)
    methods = {name: depth(name, table) - depth("Method", table) + 1 for name in table if _is_method(name, table)}
    deepest = max(methods, key=lambda name: methods[name])
    rooms = Counter(str(path.parent.relative_to(package)) for path in found)
    largest, count = rooms.most_common(1)[0]
    places, spans = touched(found, package), functions(found)
    return {
        "files": len(lengths),
        "lines": sum(lengths),
        "lines of a file: median": median(lengths),
        "lines of a file: 90 %": quantiles(lengths, n=10)[-1],
        "longest file": max(lengths),
        "lines of a function: median": median(spans),
        "lines of a function: 90 %": quantiles(spans, n=10)[-1],
        "files in the largest room": count,
        "largest room": largest,
        "classes of methods from Method down, at most": methods[deepest],
        "deepest class of a method": deepest,
        "definitions of `posteriors`": sum("posteriors" in one.defined for one in table.values()),
        "overrides of methods that do something": len(overrides(table)),
        f"windows of {ALIKE} lines written twice": twice(package),
        "names in the stubs": names(package),
        "files besides its own that name SGNHT": len(places),
        "those files": ", ".join(places),
    }


def _is_method(name: str, table: dict[str, Class]) -> bool:
    return name == "Method" or any(above.name == "Method" for above in ancestors(name, table))


if __name__ == "__main__":
    for label, value in measured(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "src" / "tunbridge").items():
        print(f"{label:<48}{value}")
