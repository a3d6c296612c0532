"""Public names and the modules that define them: declared in stubs, and by entry points of installed packages.

A stub (``.pyi``) beside a package is what type checkers read. `attach` imports a package's names lazily, from the
places that its stub declares, and a `Table` holds the names of one kind of part. Another package adds a part of its own
by an entry point in the group ``tunbridge.methods``, ``tunbridge.priors``, ``tunbridge.likelihoods``,
``tunbridge.networks`` or ``tunbridge.posteriors``, or by `Table.register`. A method can then be chosen by name in
`compare`, the command line and the estimators; parts of models and posteriors can be saved and loaded; and a prior or
likelihood that needs no arguments can be chosen by name in the command line and the estimators.
"""

import ast
import functools
import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from tunbridge.core.errors import InputError

_ROOT = Path(__file__).parents[1]


class UnknownNameError(InputError, KeyError):
    """An unknown name of a method, prior, likelihood or network."""


@functools.cache
def declared(module: str) -> dict[str, str]:
    """The names that the stub of a module re-exports, mapped to "module:name", in the order of the stub."""
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
    """Return the object that "module:name" refers to, as ``from module import name`` would import it."""
    module, _, name = place.partition(":")
    holder = importlib.import_module(module)
    submodule = f"{module}.{name}"
    if name not in vars(holder) and hasattr(holder, "__path__") and importlib.util.find_spec(submodule) is not None:
        return importlib.import_module(submodule)
    return getattr(holder, name)


def attach(module: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` for a module that imports the names of its stub lazily."""
    places = declared(module)

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = resolve(places[name])
        setattr(sys.modules[module], name, value)
        return value

    return find, lambda: sorted(places), sorted(places)


class Table(Mapping[str, Any]):
    """A mapping from the names of one kind of part to their classes, each imported on first use.

    Parameters
    ----------
    kind
        The kind of part, such as "method" or "prior".
    module
        The module whose stub declares Tunbridge's own parts of this kind.
    others
        Classes in that stub that are not of this kind.
    lower
        Whether names are written in lower case.
    within
        The package that defines all classes of this kind.

    Attributes
    ----------
    own
        Tunbridge's own names, mapped to "module:Class".
    """

    def __init__(
        self,
        kind: str,
        module: str,
        others: Collection[str] = (),
        lower: bool = False,
        within: str = "tunbridge",
    ):
        self._kind = kind
        classes = {
            name: place
            for name, place in declared(module).items()
            if name[0].isupper() and name not in others and place.startswith(f"{within}.")
        }
        self.own = {name.lower() if lower else name: place for name, place in classes.items()}
        self._registered: dict[str, str] = {}

    def __getitem__(self, name: str) -> Any:
        return resolve(self.place(name))

    def place(self, name: str) -> str:
        """Where the class of a name is defined, as "module:Class"; nothing is imported."""
        if name in self.own:
            return self.own[name]
        places = self.places
        if name not in places:
            expected = f"a {self._kind} of {', '.join(places)}"
            raise UnknownNameError(expected, repr(name), "Choose one of these names.")
        return places[name]

    @property
    def places(self) -> dict[str, str]:
        """All names mapped to ``"module:Class"``, those of installed packages and registered ones included."""
        return self.own | self.brought

    @property
    def brought(self) -> dict[str, str]:
        """Names of installed packages and registered ones, mapped to ``"module:Class"``; a taken name is left out."""
        return _installed(self._kind, frozenset(self.own)) | self._registered

    def register(self, name: str, cls: type | str) -> None:
        """Register a name for a class, or for "module:Class", in this process.

        The class must be importable from its module, so it cannot be defined inside a function.
        """
        place = cls if isinstance(cls, str) else f"{cls.__module__}:{cls.__qualname__}"
        if name in self.places and self.places[name] != place:
            raise InputError(
                f"a new name for a {self._kind}", f"{name!r}, the name of {self.places[name]}", "Choose another."
            )
        if not isinstance(_resolved_or_none(place), type):
            raise InputError("a class of a module, or its place as module:Class", repr(cls), "Define it in a module.")
        self._registered[name] = place

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self.places

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


def _resolved_or_none(place: str) -> Any:
    try:
        return resolve(place)
    except (ImportError, AttributeError, ValueError):
        return None


@functools.cache
def _entry_points() -> Any:
    """Entry points of all installed packages, searched once: each search reads a file of every package."""
    import importlib.metadata  # importing takes 0.1 s, which help texts do not need

    return importlib.metadata.entry_points()


@functools.cache
def _installed(kind: str, own: frozenset[str]) -> dict[str, str]:
    """The entry points that installed packages declare for one kind of part; UserWarning for a name that is taken."""
    places: dict[str, str] = {}
    for point in _entry_points().select(group=f"tunbridge.{kind}s"):
        if point.name in own or places.setdefault(point.name, point.value) != point.value:
            holder = "Tunbridge" if point.name in own else places[point.name]
            warnings.warn(
                f"The {kind} {point.name!r} of an installed package ({point.value}) is not used: the name is that of a "
                f"{kind} of {holder}.",
                stacklevel=2,
            )
    return places


METHODS = Table("method", "tunbridge.inference", lower=True)
PRIORS = Table(
    "prior", "tunbridge.model.priors", others=("AbstractPrior", "FanIn", "Independent", "RootInverseGamma", "Smooth")
)
LIKELIHOODS = Table("likelihood", "tunbridge.model.likelihoods")
NETWORKS = Table("network", "tunbridge.model.networks", others=("Leaf",))
POSTERIORS = Table("posterior", "tunbridge", others=declared("tunbridge.inference"), within="tunbridge.inference")
