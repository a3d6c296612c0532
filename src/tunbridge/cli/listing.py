"""What tables of classes say of them, read from their source: importing a module of Tunbridge would import JAX."""

import ast
import importlib
import re
from pathlib import Path
from typing import Any

import tunbridge


def first_words(place: str) -> str:
    """Return the first paragraph of the docstring of "module:Class", without citations and up to its first formula."""
    paragraph = docstring(place).strip().split("\n\n")[0]
    sentence = re.sub(r"\s*:cite:\w:`[^`]*`", "", paragraph).split(":math:")[0]
    return " ".join(sentence.replace("`", "").replace("*", "").split()).rstrip(" ,:.")


def docstring(place: str) -> str:
    """Return the docstring of "module:Class"."""
    node = _source(place)
    return (_imported(place).__doc__ if node is None else ast.get_docstring(node)) or ""


def promised(place: str) -> set[str]:
    """Return the kinds of promise that the method "module:Class" declares."""
    node = _source(place)
    if node is None:
        return {kind for kind, *_ in getattr(_imported(place), "promises", {}).values()}
    for part in node.body:
        if isinstance(part, ast.AnnAssign) and part.value is not None and ast.unparse(part.target) == "promises":
            return {kind for kind, *_ in ast.literal_eval(part.value).values()}
    return set()


def _imported(place: str) -> Any:
    module, name = place.split(":")
    return getattr(importlib.import_module(module), name)


def _source(place: str) -> ast.ClassDef | None:
    """The syntax tree of one of Tunbridge's own classes; None for a class of another package."""
    module, name = place.split(":")
    package, *parts = module.split(".")
    if package != tunbridge.__name__:
        return None
    file = Path(tunbridge.__file__).parent.joinpath(*parts).with_suffix(".py")
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
    raise AttributeError(f"module {module!r} has no class {name!r}")
