"""Is the model still the one that was counted? What a look of some microseconds shows of it, at each call.

A look compares which modules and parameters there are, which parameters need a gradient, and the mode of each module.
Not claimed: changes inside of a module (a method or a number that it reads, another size of the same parameter), which
only an observed step shows (`measure/meter/observations.py`).

A model of FSDP2 (`fully_shard`) as the model that it shards: whole parameters without values, none of FSDP's hooks.

Each rank runs the whole model on its own batch, so that its count is that of the whole model on that batch. Not
claimed: tensor and sequence parallelism, where a rank runs a part of each layer.
"""

import functools
import itertools
import operator
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

import torch

_trains: Any = operator.attrgetter("requires_grad")
_mode: Any = operator.attrgetter("training")
_chained = itertools.chain.from_iterable


class ModelState:
    """Numbers the states of a model. Equal numbers are states that look alike, while its modules are the same.

    The modules and parameters of the last look are held, so that none of their addresses is used again meanwhile.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._known: dict[Hashable, int] = {}
        self._count = 0
        self._modules: list[torch.nn.Module] = []
        self._parameters: list[torch.Tensor] = []
        self._held: list[dict[str, Any]] = []
        self._addresses: list[int] = []
        self._flags: list[bool] | None = None
        self._sizes: Hashable = None
        self._version = 0
        self._collect_outside = torch.compiler.disable(self._collect)

    def look(self) -> int:
        """The number of the state that the model is in."""
        if not self._held or [*map(id, _chained(map(dict.values, self._held)))] != self._addresses:
            self._collect_outside()
        flags = [*map(_trains, self._parameters), *map(_mode, self._modules)]
        if flags != self._flags:
            self._flags = flags
            key = self._sizes, tuple(flags)
            version = self._known.get(key)
            if version is None:
                self._count += 1
                version = self._known[key] = self._count
            self._version = version
        return self._version

    def renumber(self) -> None:
        """From here on the model is another one, though it looks the same."""
        self._known.clear()
        self._flags = None

    def _collect(self) -> None:
        modules = list(self._model.modules())
        if list(map(id, modules)) != list(map(id, self._modules)):
            self._known.clear()
        self._modules = modules
        self._held = [held for each in modules for held in (each._modules, each._parameters)]
        self._addresses = [id(value) for held in self._held for value in held.values()]
        self._parameters = [each for module in modules for each in module._parameters.values() if each is not None]
        self._sizes = tuple([(each.shape, each.dtype) for each in self._parameters])
        self._flags = None


_STATE = "__composable_api_state_key"
"""How the names of attributes begin in which torch's parallel wrappers keep their state of a module."""


def is_sharded(model: torch.nn.Module) -> bool:
    """Whether any of its modules is one of FSDP2's."""
    return any(_kind(module) is not type(module) for module in model.modules())


class MustRun(ValueError):
    """Only a step that runs shows what a rank calculates of it."""


def check_whole_layers(model: torch.nn.Module) -> None:
    """Raises MustRun for parameters that tensor parallelism splits: a rank then runs a part of each layer."""
    for name, parameter in model.named_parameters():
        splits = [each for each in getattr(parameter, "placements", ()) if each.is_shard()]
        if len(splits) > 1 or (splits and not is_sharded(model)):
            raise MustRun(f"tensor parallelism splits {name}: a rank's part is counted in a step that is observed")


def unsharded(model: torch.nn.Module) -> torch.nn.Module:
    """A copy of the model's modules with parameters and buffers of their whole sizes on meta.

    Other attributes of the modules are shared with the model. Raises ValueError for a parameter that is split in two
    ways, as under tensor parallelism: then a rank runs another model than this.
    """
    copies: dict[int, torch.nn.Module] = {}
    tensors: dict[int, Any] = {}

    def whole(tensor: torch.Tensor | None) -> Any:
        if tensor is None:
            return None
        if id(tensor) not in tensors:
            splits = [each for each in getattr(tensor, "placements", ()) if each.is_shard()]
            if len(splits) > 1:
                raise ValueError("expected parameters that data parallelism alone splits, got one split in two ways")
            size = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
            is_parameter = isinstance(tensor, torch.nn.Parameter)
            tensors[id(tensor)] = torch.nn.Parameter(size, tensor.requires_grad) if is_parameter else size
        return tensors[id(tensor)]

    def copied(module: torch.nn.Module) -> torch.nn.Module:
        if id(module) in copies:
            return copies[id(module)]
        copy = copies[id(module)] = object.__new__(_kind(module))
        copy.__dict__.update({key: value for key, value in module.__dict__.items() if not key.startswith(_STATE)})
        for name in ("_parameters", "_buffers"):
            copy.__dict__[name] = {key: whole(value) for key, value in module.__dict__[name].items()}
        for name in [name for name in module.__dict__ if name.endswith("_hooks")]:
            hooks = module.__dict__[name].items()
            copy.__dict__[name] = OrderedDict((key, hook) for key, hook in hooks if not _is_torchs_own(hook))
        children = module._modules.items()
        copy.__dict__["_modules"] = {key: None if each is None else copied(each) for key, each in children}
        return copy

    return copied(model)


def _kind(module: torch.nn.Module) -> type[torch.nn.Module]:
    """The class of a module before FSDP2 put its own before it."""
    kind = type(module)
    if torch.distributed.is_available():
        from torch.distributed.fsdp import FSDPModule

        if isinstance(module, FSDPModule):
            plain = (each for each in kind.__mro__[1:] if issubclass(each, torch.nn.Module))
            return next(each for each in plain if not issubclass(each, FSDPModule))
    return kind


def _is_torchs_own(hook: Any) -> bool:
    """Whether distributed PyTorch registered this hook."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    return str(getattr(hook, "__module__", "")).startswith("torch.distributed")
