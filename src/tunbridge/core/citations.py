"""What to cite: the papers behind a posterior, as BibTeX."""

import importlib.resources
import re
from typing import Any

from tunbridge.core.errors import InputError
from tunbridge.core.provenance import Provenance

_ENTRY = re.compile(r"^@\w+\{(\w+),.*?^\}$", re.M | re.S)


def bibliography() -> dict[str, str]:
    """Tunbridge's bibliography: a dictionary from citation keys to BibTeX entries."""
    text = importlib.resources.files("tunbridge").joinpath("references.bib").read_text("utf-8")
    return {entry[1]: entry[0] for entry in _ENTRY.finditer(text)}


def cite(posterior: Any) -> str:
    """Print and return the BibTeX entries to cite for a posterior: Tunbridge, its method and the parts of its model.

    Keys are collected from the docstrings of the classes. A key that a class of your own cites but Tunbridge's
    bibliography lacks is named in a comment.
    """
    provenance = getattr(posterior, "provenance", None)
    if not isinstance(provenance, Provenance):
        raise InputError("a posterior that a method fitted", type(posterior).__name__, "Pass what fit returned.")
    entries = bibliography()
    keys = ("tunbridge", *provenance.references)
    text = "\n".join(entries.get(key, f"% {key}: not in Tunbridge's bibliography") for key in keys)
    print(text)
    return text
