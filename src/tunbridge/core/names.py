"""Names and where they live, told once: in the stub beside a package, and by other packages that are installed.

A stub (``.pyi``) is what a type checker reads. `attach` lets its package import a name from it when it is asked for,
and a `Table` holds the names of one kind of part. Another package adds a part of its own by an entry point in the
group ``tunbridge.methods``, ``tunbridge.priors``, ``tunbridge.likelihoods`` or ``tunbridge.networks``, or by
`Table.register`; it is then known wherever names are: to `compare`, the command line, estimators, `save` and `load`.
"""

import ast
import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tunbridge.core.errors import InputError

_ROOT = Path(__file__).parents[1]


class UnknownNameError(InputError, KeyError):
    """A name that no part of its kind has."""


@functools.cache
def declared(module: str) -> dict[str, str]:
    """Names to "module:name" in the order of the stub of a module of Tunbridge: what it imports for others."""
    path = _ROOT.joinpath(*module.split(".")[1:])
    stub = path / "__init__.pyi" if path.is_dir() else path.with_suffix(".pyi")
    places: dict[str, str] = {}
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        for alias in node.names:
            if alias.name == "*":
                places |= declared(node.module)
            elif alias.asname == alias.name:
                places[alias.name] = f"{node.module}:{alias.name}"
    return places


def resolve(place: str) -> Any:
    """What "module:name" names, as ``from module import name`` would give it."""
    module, _, name = place.partition(":")
    holder = importlib.import_module(module)
    inner = f"{module}.{name}"
    if name not in vars(holder) and hasattr(holder, "__path__") and importlib.util.find_spec(inner) is not None:
        return importlib.import_module(inner)
    return getattr(holder, name)


def attach(module: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a module, whose stub says where each name lives."""
    places = declared(module)

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        found = resolve(places[name])
        setattr(sys.modules[module], name, found)
        return found

    return find, lambda: sorted(places), sorted(places)


class Table(Mapping[str, Any]):
    """The names of one kind of part to their classes, each imported when it is asked for.

    Parameters
    ----------
    kind
        What has such names: "method", "prior".
    module
        The module whose stub declares those of Tunbridge.
    others
        Classes in that stub that are of another kind.
    lower
        Whether names are written in small letters.
    """

    def __init__(self, kind: str, module: str, others: tuple[str, ...] = (), lower: bool = False):
        self._kind = kind
        classes = {name: at for name, at in declared(module).items() if name[0].isupper() and name not in others}
        self._own = {name.lower() if lower else name: place for name, place in classes.items()}
        self._registered: dict[str, str] = {}

    def __getitem__(self, name: str) -> Any:
        return resolve(self.place(name))

    def place(self, name: str) -> str:
        """Where a name lives, as "module:Class"; nothing is imported."""
        if name in self._own:
            return self._own[name]
        places = self.places
        if name not in places:
            expected = f"a {self._kind} of {', '.join(places)}"
            raise UnknownNameError(expected, repr(name), "Choose one of these names.")
        return places[name]

    @property
    def places(self) -> dict[str, str]:
        """All names to where they live: Tunbridge's own, those of installed packages, those that were registered."""
        return _installed(self._kind) | self._own | self._registered

    def register(self, name: str, cls: type | str) -> None:
        """Give a class, or "module:Class", a name in this process.

        It must be found again where it lives, so it cannot be one that is defined inside a function.
        """
        place = cls if isinstance(cls, str) else f"{cls.__module__}:{cls.__qualname__}"
        if name in self.places and self.places[name] != place:
            raise InputError(f"a new name for a {self._kind}", f"{name!r}, of {self.places[name]}", "Choose another.")
        if not isinstance(_or_none(place), type):
            raise InputError("a class of a module, or its place as module:Class", repr(cls), "Define it in a module.")
        self._registered[name] = place

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self.places

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


def _or_none(place: str) -> Any:
    try:
        return resolve(place)
    except (ImportError, AttributeError, ValueError):
        return None


@functools.cache
def _installed(kind: str) -> dict[str, str]:
    """What installed packages declare."""
    import importlib.metadata  # a tenth of a second that help texts do not need

    return {point.name: point.value for point in importlib.metadata.entry_points(group=f"tunbridge.{kind}s")}


METHODS = Table("method", "tunbridge.inference", lower=True)
PRIORS = Table("prior", "tunbridge.model.priors", others=("AbstractPrior", "FanIn", "Independent", "Smooth"))
LIKELIHOODS = Table("likelihood", "tunbridge.model.likelihoods")
NETWORKS = Table("network", "tunbridge.model.networks", others=("Leaf",))
