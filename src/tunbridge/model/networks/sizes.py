"""Checks of the sizes of networks: whole numbers above 0, with a known number of outputs."""

from typing import Any

from tunbridge.core.errors import InputError


def check(network: Any, *names: str) -> None:
    """Raise InputError unless these fields of a network, and `outputs` if set, are whole numbers above 0."""
    sizes = {name: getattr(network, name) for name in names}
    if network.outputs is not None:
        sizes["outputs"] = network.outputs
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 1:
            raise InputError(f"a whole number above 0 as {name}", repr(size), f"Change {name}.")


def outputs(network: Any) -> int:
    """Number of outputs of a network; InputError if it is still open."""
    if network.outputs is None:
        name = type(network).__name__
        raise InputError(
            "a network that knows its outputs",
            f"{name}(outputs=None)",
            f"Say {name}(..., outputs=1), or fit it to data.",
        )
    return network.outputs
