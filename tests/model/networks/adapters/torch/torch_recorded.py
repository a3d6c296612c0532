"""What PyTorch answered, kept so that its modules are tested where it is not installed.

``python tests/model/networks/adapters/torch/torch_recorded.py`` (with PyTorch, and `tests` on the path) writes the file
anew: for every module of `torch_modules` its graph, layout, weights, constants, inputs, outputs and gradients of their
sum.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from tunbridge.model.networks import Leaf, from_torch
from tunbridge.model.networks.adapters.foreign import described, flattened, nested
from tunbridge.model.networks.adapters.torch import graph as torch_graph
from tunbridge.model.networks.adapters.torch.network import Torch

FILE = Path(__file__).with_suffix(".npz")
_KINDS = ("weights", "constants", "x", "outputs", "gradients")
_PARTS = {part.__name__: part for part in vars(torch_graph).values() if isinstance(part, type)}


class Recorded(NamedTuple):
    """A network, inputs, and what PyTorch makes of them; gradients by path."""

    network: Torch
    x: Any
    outputs: Any
    gradients: dict[str, Any]


def record(name):
    """Asks PyTorch."""
    import torch

    from model.networks.adapters.torch.torch_modules import made

    module, x = made(name)
    network = from_torch(module)
    outputs = module.eval()(torch.as_tensor(x))
    outputs.sum().backward()
    free = {path.replace(".", "/"): p.grad.numpy() for path, p in module.named_parameters() if p.requires_grad}
    return Recorded(network, x, outputs.detach().numpy(), free)


def names():
    """The modules on file."""
    with np.load(FILE) as file:
        return sorted(json.loads(str(file["described"])))


def read(name):
    """What PyTorch answered when the file was made."""
    with np.load(FILE) as file:
        graph, roles = json.loads(str(file["described"]))[name]
        arrays = {tuple(path.split("|")[1:]): file[path] for path in file.files if path.startswith(f"{name}|")}
    groups = {kind: {path[1:]: array for path, array in arrays.items() if path[0] == kind} for kind in _KINDS}
    weights = nested({path: jnp.asarray(array) for path, array in groups["weights"].items()})
    leaves = {tuple(path): Leaf(*map(_tuples, leaf)) for path, leaf in roles}
    return Recorded(
        Torch(
            weights,
            nested({path: jnp.asarray(array) for path, array in groups["constants"].items()}),
            described(weights, lambda path, _: leaves[path]),
            _object(graph),
        ),
        groups["x"][()],
        groups["outputs"][()],
        {path[0]: array for path, array in groups["gradients"].items()},
    )


def write(recorded):
    """All modules, by name, into the file."""
    arrays, said = {}, {}
    for name, (network, x, outputs, gradients) in recorded.items():
        flat = {"weights": flattened(network.weights), "constants": flattened(network.constants)}
        flat |= {"x": {(): x}, "outputs": {(): outputs}, "gradients": {(path,): g for path, g in gradients.items()}}
        for kind, group in flat.items():
            arrays |= {"|".join((name, kind, *path)): np.asarray(array) for path, array in group.items()}
        layout = flattened(network.layout(network.weights))
        said[name] = (
            _plain(network.graph),
            [(path, (leaf.role, leaf.inputs, leaf.outputs, leaf.shared)) for path, leaf in layout.items()],
        )
    np.savez_compressed(FILE, described=json.dumps(said), **arrays)


def _plain(part):
    """A graph as lists that JSON takes: a dataclass is its name and its fields."""
    if type(part).__name__ in _PARTS and type(part) is _PARTS[type(part).__name__]:
        return ["new", type(part).__name__, *(_plain(value) for value in vars(part).values())]
    if isinstance(part, tuple):
        return ["tuple", *map(_plain, part)]
    return ["..."] if part is ... else part


def _object(plain):
    """The inverse of `_plain`."""
    match plain:
        case ["new", name, *fields]:
            return _PARTS[name](*map(_object, fields))
        case ["tuple", *items]:
            return tuple(map(_object, items))
        case ["..."]:
            return ...
    return plain


def _tuples(part):
    return tuple(part) if isinstance(part, list) else part


def main():
    from model.networks.adapters.torch.torch_modules import MODULES

    write({name: record(name) for name in MODULES})
    print(f"{FILE.name}: {len(MODULES)} modules, {FILE.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
