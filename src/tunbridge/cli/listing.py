"""One-line descriptions of classes, taken from their docstrings."""

import ast
import importlib
import re
from pathlib import Path

import tunbridge


def first_words(place: str) -> str:
    """Return the first paragraph of the docstring of "module:Class", without citations and up to its first formula."""
    paragraph = _docstring(*place.split(":")).strip().split("\n\n")[0]
    sentence = re.sub(r"\s*:cite:\w:`[^`]*`", "", paragraph).split(":math:")[0]
    return " ".join(sentence.replace("`", "").replace("*", "").split()).rstrip(" ,:.")


def _docstring(module: str, name: str) -> str:
    """Return a class's docstring; a module of Tunbridge is parsed as text, because importing it would import JAX."""
    package, *parts = module.split(".")
    if package != tunbridge.__name__:
        return getattr(importlib.import_module(module), name).__doc__ or ""
    file = Path(tunbridge.__file__).parent.joinpath(*parts).with_suffix(".py")
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return ast.get_docstring(node) or ""
    raise AttributeError(f"module {module!r} has no class {name!r}")
