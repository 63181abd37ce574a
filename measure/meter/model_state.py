"""Is the model still the one that was counted? What a look of some microseconds shows of it, at each call.

A look compares which modules and parameters there are, which parameters need a gradient, and the mode of each module.
Not claimed: changes inside of a module (a method or a number that it reads, another size of the same parameter), which
only an observed step shows (`measure/meter/observations.py`).
"""

import itertools
import operator
from collections.abc import Hashable
from typing import Any

import torch

from measure.model.state_snapshot import modules

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
        found = modules(self._model)
        if list(map(id, found)) != list(map(id, self._modules)):
            self._known.clear()
        self._modules = found
        self._held = [held for each in found for held in (each._modules, each._parameters)]
        self._addresses = [id(value) for held in self._held for value in held.values()]
        self._parameters = [each for module in found for each in module._parameters.values() if each is not None]
        self._sizes = tuple([(each.shape, each.dtype) for each in self._parameters])
        self._flags = None
