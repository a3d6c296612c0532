"""Reads a PyTorch module into a `Graph`, and names everything in it that is not supported."""

import builtins
import copy
import inspect
import operator
from typing import Any

from tunbridge.core.errors import InputError
from tunbridge.model.networks.adapters.torch.functions import ATTRIBUTES
from tunbridge.model.networks.adapters.torch.graph import FUNCTIONS, Graph, Items, Named, Slice, Step, Value, Weight
from tunbridge.model.networks.adapters.torch.layers import LAYERS, attribute

_VIEWS = (
    *("chunk", "contiguous", "dropout", "expand", "flatten", "getitem", "permute", "reshape", "split", "squeeze", "t"),
    *("transpose", "unsqueeze", "view"),
)
_OFF = ("ceil_mode", "return_indices", "divisor_override")
"""Options of functions that are supported only when they are off."""


class Reader:
    """Reads one module; `graph` is its graph, `used` the tensors that the graph uses, by path."""

    def __init__(self, module: Any):
        self.module = copy.deepcopy(module).eval()
        named = [*self.module.named_parameters(), *self.module.named_buffers()]
        self.paths = {id(tensor): tuple(path.split(".")) for path, tensor in named}
        self.used: dict[tuple[str, ...], Any] = {}
        self.unsupported: list[str] = []
        self.fixed: dict[str, Weight] = {}
        """The tensors that get_attr nodes refer to, by the nodes' names."""
        self._check_modules()
        self.door, traced = _traced(self.module)
        self.graph = self._read(list(traced.nodes))
        if self.unsupported:
            raise InputError(
                "a module of layers and functions that from_torch knows",
                ", ".join(dict.fromkeys(self.unsupported)),
                "Replace these, or write the network with from_functions.",
            )

    def _check_modules(self) -> None:
        """Record hooks and parametrizations as unsupported: code that runs around a layer is not in the graph."""
        from torch.nn.utils.parametrize import is_parametrized

        for path, module in self.module.named_modules():
            if module._forward_hooks or module._forward_pre_hooks:
                self.unsupported.append(f"{path or 'the module'} (hooks)")
            if is_parametrized(module):
                self.unsupported.append(f"{path or 'the module'} (parametrizations)")

    def _read(self, nodes: list[Any]) -> Graph:
        inputs, outputs, steps = "", None, []
        for order, node in enumerate(nodes):
            if node.op == "placeholder":
                inputs = node.name
            elif node.op == "output":
                outputs = self._plain(node.args[0])
            elif node.op == "get_attr":
                self.fixed[node.name] = self._tensor(node.target)
            else:
                steps += self._steps(node)
                if self._writes(node) and self._read_later(node, nodes[order + 1 :]):
                    self._refuse(node, "writes in place to a value that is read again")
        return Graph(inputs, tuple(steps), outputs)

    def _steps(self, node: Any) -> list[Step]:
        if node.op == "call_module":
            return self._layer(node, node.name, _submodule(self.module, node), node.args, node.kwargs)
        name = _name(node).removesuffix("_")
        if name not in FUNCTIONS:
            self._refuse(node, f"{'method' if node.op == 'call_method' else 'function'} {name}")
            return []
        if name == "getattr" and node.args[1] not in ATTRIBUTES:
            self._refuse(node, f"attribute {node.args[1]}")
            return []
        kwargs = {key: value for key, value in node.kwargs.items() if key != "inplace" and (value or key not in _OFF)}
        return self._step(node, node.name, name, node.args, kwargs)

    def _layer(self, node: Any, name: str, module: Any, args: tuple, kwargs: dict) -> list[Step]:
        kind = type(module).__name__
        if kind == "TransformerEncoder" and len(args) == 1 and not kwargs:
            return self._stack(node, name, module, args)
        if kind not in LAYERS or not type(module).__module__.startswith("torch.nn.modules."):
            self._refuse(node, kind)
            return []
        layer = LAYERS[kind]
        missing = layer.missing(module)
        if missing or (kind == "TransformerEncoderLayer" and not module.activation_relu_or_gelu):
            self._refuse(node, f"{kind} with {missing or 'a custom activation'}")
            return []
        kwargs = {**kwargs, **layer.read(module), **self._arrays(layer, module)}
        return self._step(node, name, layer.function, args, kwargs)

    def _stack(self, node: Any, name: str, module: Any, args: tuple) -> list[Step]:
        """Steps of an encoder's layers, one after another, and of its norm."""
        steps: list[Step] = []
        for part in (*module.layers, *([] if module.norm is None else [module.norm])):
            last = (Value(steps[-1].name),) if steps else args
            steps += self._layer(node, f"{name}_{len(steps)}", part, last, {})
        return [*steps[:-1], *(Step(name, step.function, step.args, step.kwargs) for step in steps[-1:])]

    def _arrays(self, layer: Any, module: Any) -> dict[str, Any]:
        """A layer's own tensors as keyword arguments."""
        if layer.arrays is None:
            named = module.named_parameters(remove_duplicate=False)
            return {"arrays": {name: self._weight(tensor) for name, tensor in named}}
        tensors = {name: getattr(module, name) for name in layer.arrays}
        return {name: self._weight(tensor) for name, tensor in tensors.items() if tensor is not None}

    def _step(self, node: Any, name: str, function: str, args: tuple, kwargs: dict) -> list[Step]:
        plain_args, plain_kwargs = self._plain(tuple(args)), self._plain(kwargs)
        try:
            inspect.signature(FUNCTIONS[function]).bind(*plain_args, **dict(plain_kwargs.items))
        except TypeError as error:
            self._refuse(node, f"{function}: {error}")
            return []
        return [Step(name, function, plain_args, plain_kwargs)]

    def _tensor(self, target: str) -> Weight:
        """A reference to a parameter, a buffer, or a constant that the module's code made."""
        tensor = attribute(self.door, target)
        if id(tensor) not in self.paths:
            if tensor.requires_grad:
                self.unsupported.append(f"{target} (computed from parameters outside the graph)")
            self.paths[id(tensor)] = (target,)
        return self._weight(tensor)

    def _weight(self, tensor: Any) -> Weight:
        path = self.paths[id(tensor)]
        self.used[path] = tensor
        return Weight(path)

    def _plain(self, part: Any) -> Any:
        """An argument as plain data."""
        from torch import fx

        match part:
            case fx.Node():
                return self.fixed.get(part.name, Value(part.name))
            case slice():
                return Slice(*map(self._plain, (part.start, part.stop, part.step)))
            case list():
                return Items(tuple(map(self._plain, part)))
            case tuple():
                return tuple(map(self._plain, part))
            case dict():
                return Named(tuple((name, self._plain(value)) for name, value in part.items()))
            case None | bool() | int() | float() | str() | Value() | Weight() | builtins.Ellipsis:
                return part
        self.unsupported.append(f"the argument {part!r}")
        return None

    def _writes(self, node: Any) -> bool:
        if node.op == "call_module":
            return bool(getattr(_submodule(self.module, node), "inplace", False))
        return _name(node).endswith("_") or bool(node.kwargs.get("inplace", False))

    def _read_later(self, node: Any, later: list[Any]) -> bool:
        """Whether the value that a node writes to, or a view of it, is read after the node by its old name."""
        root = node.all_input_nodes[0]
        while self._is_view(root):
            root = root.all_input_nodes[0]
        stale, queue = {root}, [root]
        while queue:
            for user in queue.pop().users:
                if user is not node and user not in stale and self._is_view(user):
                    stale.add(user)
                    queue.append(user)
        return any(user in later for old in stale for user in old.users)

    def _is_view(self, node: Any) -> bool:
        """Whether a node returns its input, or a part of it, rather than a new value."""
        if node.op == "call_module":
            layer = LAYERS.get(type(_submodule(self.module, node)).__name__)
            return self._writes(node) or (layer is not None and layer.function in _VIEWS)
        return node.op in ("call_function", "call_method") and (self._writes(node) or _name(node) in _VIEWS)

    def _refuse(self, node: Any, what: str) -> None:
        path = _path(node)
        self.unsupported.append(f"{path} ({what})" if path else what)


def _traced(module: Any) -> tuple[Any, Any]:
    """Return a module that calls `module` with one tensor, and its graph: other arguments keep their defaults."""
    from torch import fx, nn

    class Door(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Any) -> Any:
            return self.module(x)

    class Proxy(fx.Proxy):
        """Records ``a += b`` as a write in place."""

    for symbol in ("iadd", "isub", "imul", "itruediv"):
        setattr(Proxy, f"__{symbol}__", _in_place(getattr(operator, symbol)))

    class Tracer(fx.Tracer):
        proxy_buffer_attributes = True

        def proxy(self, node: Any) -> Any:
            return Proxy(node, self)

    door = Door().eval()
    try:
        return door, Tracer().trace(door)
    except Exception as error:  # on symbols, the module's own code may raise anything
        raise InputError(
            "a module that torch.fx can trace: one tensor in, no branches on values",
            str(error).split(". ")[0].split("\n")[0],
            "Remove what depends on values, or write the network with from_functions.",
        ) from error


def _in_place(function: Any) -> Any:
    return lambda proxy, other: proxy.tracer.create_proxy("call_function", function, (proxy, other), {})


def _submodule(module: Any, node: Any) -> Any:
    return module.get_submodule(node.target.removeprefix("module").removeprefix("."))


def _path(node: Any) -> str:
    """Path in the module that a node comes from."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    path = node.target if node.op == "call_module" else stack[-1][0] if stack else ""
    return path.removeprefix("module").removeprefix(".")


def _name(node: Any) -> str:
    """A method's or a function's name, ending in "_" where it writes in place; with its module if it is the user's."""
    if node.op == "call_method":
        return node.target
    name = getattr(node.target, "__name__", repr(node.target))
    if name in ("iadd", "isub", "imul", "itruediv"):
        return f"{name[1:]}_"
    import torch

    homes = (torch, torch.nn.functional, operator, builtins)
    known = any(getattr(home, name, None) is node.target for home in homes)
    return name if known else f"{getattr(node.target, '__module__', '')}.{name}"
