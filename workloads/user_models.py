"""Models that a person's own function makes: `package.module:function` and `path/to/file.py:function`.

The function is called without arguments, but for its parameters with a whole number as default: those are the sizes
of the workload. What it may return, and what may stand beside it, is in `docs/models.md`. It is the person's own code:
it runs with all rights, and what it prints it prints.

Of a LightningModule what is trained is its `training_step`, on batches as its data loader gives them: calling it from
outside runs `training_step(batch, 0)` and gives the loss, so that the paths of the modules stay. Lightning is not
imported and its Trainer is not run: hooks, callbacks and optimizers stepped by hand are not part of what is measured.
"""

import hashlib
import importlib
import importlib.util
import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from workloads.any_model import building, draw, positional, resized, split, takes
from workloads.catalogue.base import Batch, Workload, mean_loss
from workloads.catalogue.model_names import Shape, Spec, check, nearest

BASE = "LightningModule"
"""The name of Lightning's class, in both of its packages."""


def has_training_step(model: torch.nn.Module) -> bool:
    """Whether it is a LightningModule with a training step of its own."""
    base = next((parent for parent in type(model).__mro__ if parent.__name__ == BASE), None)
    return base is not None and getattr(type(model), "training_step", None) is not getattr(base, "training_step", None)


def stepping(model: torch.nn.Module, text: str) -> torch.nn.Module:
    """The module, which from now on runs its training step where it is called from outside. text: its name.

    Raises ValueError for one that steps its optimizers by hand.
    """
    if not getattr(model, "automatic_optimization", True):
        raise ValueError(
            f"{text} steps its optimizers by hand (automatic_optimization = False): give a module and NAME_loss"
        )
    if not isinstance(model.__dict__.get("forward"), _Step):
        model.forward = _Step(model, text)
    return model


class _Step:
    """`forward` of such a module: from outside its training step, inside of it what the class says."""

    def __init__(self, model: Any, text: str) -> None:
        self._model, self._text, self._inside = model, text, False

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        if self._inside:
            return type(self._model).forward(self._model, *inputs, **named)
        self._inside = True
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*self.trainer.*")  # self.log outside of a Trainer
                found = self._model.training_step(inputs[0] if len(inputs) == 1 else inputs, 0)
        finally:
            self._inside = False
        loss = found.get("loss") if isinstance(found, dict) else found
        if not isinstance(loss, torch.Tensor):
            raise ValueError(f"{self._text}: expected a loss from training_step, got {type(loss).__name__}")
        return loss


def as_batch(batch: Any) -> Batch:
    """A batch of the data loader's as what the module is called with: one argument."""
    if isinstance(batch, Batch):
        return batch
    if isinstance(batch, tuple) and batch and isinstance(batch[-1], dict):  # as --input gives them: by place, by name
        *places, named = batch
        batch = named if not places else places[0] if len(places) == 1 and not named else tuple(places)
    return Batch((batch,), None)


def loss_of_step(output: Any, _target: Any) -> torch.Tensor:
    """The loss that the training step gave."""
    return output if isinstance(output, torch.Tensor) and output.dim() == 0 else mean_loss(output)


class OwnOptimizer:
    """`configure_optimizers` of the module that was built last, for `--optimizer own`."""

    def __init__(self) -> None:
        self.model: Any = None

    def __call__(self, _parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """Raises ValueError for several optimizers, or none."""
        made = self.model.configure_optimizers()
        if isinstance(made, tuple) and len(made) == 2:
            made = made[0]
        if isinstance(made, dict):
            made = made.get("optimizer")
        if isinstance(made, (list, tuple)) and len(made) == 1:
            made = made[0]
        if not isinstance(made, torch.optim.Optimizer):
            raise ValueError(f"expected one optimizer from configure_optimizers, got {type(made).__name__}")
        return made


Made = Callable[[int, torch.device, "torch.Generator | None"], Any]
"""(size, device, generator) → inputs, or a Batch."""

RETURNS = "a torch.nn.Module, (module, inputs), (module, function that makes inputs) or a Workload"


def get(spec: Spec, shapes: Sequence[Shape] = (), maker: Spec | None = None, /, **hyper: int) -> Workload:
    """The workload of a function. shapes, maker: what to feed it, the latter a function's name; maker comes first.

    Raises ValueError, in one line, for a function that is missing, fails, or returns something else, and for a model
    without inputs; Unavailable for one that wants to download.
    """
    module = load(spec)
    function = member(module, spec)
    sizes = _sizes(spec, function, hyper)
    result = _call(spec, function, sizes)
    if isinstance(result, Workload):
        return replace(result, name=spec.text)
    model, inputs = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"{spec.text}: expected {RETURNS}; got {_type_text(result)}")
    feed = _feed(spec, module, inputs, shapes, maker)
    own_loss = getattr(module, f"{spec.function}_loss", None)
    steps_itself = own_loss is None and has_training_step(model)
    optimizer = OwnOptimizer() if steps_itself else None
    return Workload(
        name=spec.text,
        task="general",
        hyper=sizes,
        build=_Build(spec, function, model, optimizer),
        batch=partial(_data_loader_batch, feed) if steps_itself else partial(_batch, spec.text, takes(model), feed),
        loss=own_loss or (loss_of_step if steps_itself else mean_loss),
        source=spec.text,
        optimizer=optimizer,
    )


def load(spec: Spec) -> ModuleType:
    """The module of a function, imported, or run from its file. Raises ValueError, or Unavailable, with what was
    raised there."""
    check(spec.text)
    with building(f"{spec.text}: importing {spec.target}"):
        return _run(Path(spec.target).expanduser()) if spec.form == "file" else importlib.import_module(spec.target)


def _run(path: Path) -> ModuleType:
    """Runs a file as a module, once a process for each content: torch may crash where an operator is defined anew.

    A file that holds modules or tensors is run again, as they may have been trained, moved or made without values. Its
    directory is added to those that imports look into, last.
    """
    whole = path.resolve()
    name = f"{whole.stem}_{hashlib.sha256(bytes(whole) + whole.read_bytes()).hexdigest()[:8]}"
    earlier = sys.modules.get(name)
    if earlier and not any(isinstance(value, torch.nn.Module | torch.Tensor) for value in vars(earlier).values()):
        return earlier
    spec = importlib.util.spec_from_file_location(name, whole)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]  # a .py file has a spec and a loader
    if str(whole.parent) not in sys.path:
        sys.path.append(str(whole.parent))
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)  # type: ignore[union-attr]
    except BaseException:
        del sys.modules[name]
        raise
    return module


def member(module: ModuleType, spec: Spec) -> Callable[..., Any]:
    """The function. Raises ValueError if it is missing, with the nearest name, or cannot be called."""
    function = getattr(module, spec.function, None)
    if function is None:
        names = [name for name, value in vars(module).items() if callable(value)]
        raise ValueError(f"{spec.target} has no {spec.function!r}{nearest(spec.function, names)}")
    if not callable(function):
        raise ValueError(f"{spec.text}: expected a function, got {_type_text(function)}")
    return function  # type: ignore[no-any-return]


def _sizes(spec: Spec, function: Callable[..., Any], chosen: Mapping[str, int]) -> dict[str, int]:
    """The function's parameters that are whole numbers, the chosen ones in place of its defaults."""
    parameters = inspect.signature(function).parameters
    for name in chosen:
        if name not in parameters:
            raise ValueError(f"{spec.text} takes no {name}; it takes {', '.join(parameters) or 'nothing'}")
    sizes = {name: p.default for name, p in parameters.items() if type(p.default) is int} | dict(chosen)
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for name, parameter in parameters.items():
        if name not in sizes and parameter.default is inspect.Parameter.empty and parameter.kind not in variadic:
            raise ValueError(f"{spec.text}: expected a function that needs no arguments; it needs {name!r}")
    return sizes


def _call(spec: Spec, function: Callable[..., Any], sizes: Mapping[str, int]) -> Any:
    with building(spec.text):
        return function(**sizes)


class _Build:
    """Builds the model: the first time, if that is on the device asked for, the one that told what the function
    returns."""

    def __init__(
        self,
        spec: Spec,
        function: Callable[..., Any],
        first: torch.nn.Module,
        stepped: OwnOptimizer | None = None,
    ) -> None:
        self._spec, self._function, self._stepped = spec, function, stepped
        if stepped is not None:
            stepping(first, spec.text)
        self._first: torch.nn.Module | None = first

    def __call__(self, **sizes: int) -> torch.nn.Module:
        first, self._first = self._first, None
        device = torch.get_default_device()
        if first is not None and all(parameter.device == device for parameter in first.parameters()):
            return self._trained(first)
        made = _call(self._spec, self._function, sizes)
        model: torch.nn.Module = made[0] if isinstance(made, tuple) else made
        return self._trained(model)

    def _trained(self, model: torch.nn.Module) -> torch.nn.Module:
        if self._stepped is None:
            return model.train()
        self._stepped.model = stepping(model, self._spec.text)
        return model.train()


def _feed(spec: Spec, module: ModuleType, inputs: Any, shapes: Sequence[Shape], maker: Spec | None) -> Made:
    """What makes the inputs: --batch, --input, what the function returned, or NAME_batch beside it, in this order."""
    if maker is not None:
        return partial(_named_maker, maker, member(load(maker), maker))
    if shapes:
        return partial(_draw_batch, tuple(shapes))
    if inputs is None:
        inputs = getattr(module, f"{spec.function}_batch", None)
    if inputs is None:
        raise ValueError(
            f"{spec.text} says nothing of its inputs: add --input 3x224x224, or return (module, inputs), or define "
            f"{spec.function}_batch(size, device, generator)"
        )
    if callable(inputs) and not isinstance(inputs, torch.Tensor):
        return partial(_named_maker, spec, inputs)
    split(inputs)
    return lambda size, device, _generator: resized(inputs, size, device)


def _named_maker(
    spec: Spec, maker: Callable[..., Any], size: int, device: torch.device, generator: torch.Generator | None
) -> Any:
    with building(f"{spec.text}: {getattr(maker, '__name__', spec.function)}(size, device, generator)"):
        return maker(size, device, generator)


def _draw_batch(shapes: Sequence[Shape], size: int, device: torch.device, generator: torch.Generator | None) -> Any:
    plain = [draw(shape, size, device, generator) for shape in shapes if not shape.name]
    return (*plain, {shape.name: draw(shape, size, device, generator) for shape in shapes if shape.name})


def _data_loader_batch(
    feed: Made, _hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None
) -> Batch:
    return as_batch(feed(size, device, generator))


def _batch(
    text: str,
    parameters: Sequence[inspect.Parameter],
    feed: Made,
    hyper: Mapping[str, int],
    size: int,
    device: torch.device,
    generator: torch.Generator | None,
) -> Batch:
    batch = feed(size, device, generator)
    if isinstance(batch, Batch):
        return batch
    try:
        inputs, named = split(batch)
    except ValueError as fault:
        raise ValueError(f"{text}: {fault}") from fault
    return Batch(positional(parameters, inputs, named), None)


def _type_text(value: Any) -> str:
    """What came, by its type."""
    if isinstance(value, tuple):
        return f"({', '.join(type(part).__name__ for part in value)})"
    return f"a {type(value).__name__}"
