"""Makes workloads of models that a user's function builds: `package.module:function` or `path/to/file.py:function`.

`get` calls the function and returns a `Workload`. It passes only parameters whose default is a whole number: those are
the sizes of the workload. `docs/models.md` lists the results that the function may return, and other names that its
file may define. User code runs with all rights, and its output is shown. A LightningModule is trained by its
`training_step`, on batches of its data loader. Calling the module from outside runs `training_step(batch, 0)` and
returns the loss, so that the paths of the modules stay. Lightning is not imported and its Trainer is not run. Hooks,
callbacks and optimizers stepped by hand are not measured.
"""

import hashlib
import importlib
import importlib.util
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from workloads.any_model import building, draw, forward_parameters, positional, resized, split
from workloads.catalogue.base import Batch, Workload, mean_loss
from workloads.catalogue.model_names import Shape, Spec, check, nearest


def stepping(model: torch.nn.Module, text: str) -> torch.nn.Module:
    """Return the module, which from now on runs its training step when it is called from outside. text: its name.

    Raises ValueError for a module that steps its optimizers by hand.
    """
    if not getattr(model, "automatic_optimization", True):
        raise ValueError(
            f"{text} steps its optimizers by hand (automatic_optimization = False): give a module and NAME_loss"
        )
    if not isinstance(model.__dict__.get("forward"), _StepForward):
        model.forward = _StepForward(model, text)
    return model


class _StepForward:
    """`forward` of a LightningModule: a call from outside runs its training step, a call within that step the class's
    `forward`."""

    def __init__(self, model: Any, text: str) -> None:
        self._model, self._text, self._inside = model, text, False

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        if self._inside:
            return type(self._model).forward(self._model, *inputs, **named)
        self._inside = True
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*self.trainer.*")  # self.log outside of a Trainer
                result = self._model.training_step(inputs[0] if len(inputs) == 1 else inputs, 0)
        finally:
            self._inside = False
        loss = result.get("loss") if isinstance(result, dict) else result
        if not isinstance(loss, torch.Tensor):
            raise ValueError(f"{self._text}: expected a loss from training_step, got {type(loss).__name__}")
        return loss


def as_batch(batch: Any) -> Batch:
    """Return a data loader's batch as a `Batch` with one input, with which the module is called."""
    if isinstance(batch, Batch):
        return batch
    if isinstance(batch, tuple) and batch and isinstance(batch[-1], dict):  # of --input: by position, then by name
        *positional, named = batch
        batch = named if not positional else positional[0] if len(positional) == 1 and not named else tuple(positional)
    return Batch((batch,), None)


def loss_of_step(output: Any, _target: Any) -> torch.Tensor:
    """Return the loss that the training step returned; the mean of the output if it is no scalar."""
    return output if isinstance(output, torch.Tensor) and output.dim() == 0 else mean_loss(output)


def configured_optimizer(model: Any) -> torch.optim.Optimizer:
    """Return the optimizer of the module's `configure_optimizers`. Raises ValueError for several optimizers, or
    none."""
    configured = model.configure_optimizers()
    if isinstance(configured, tuple) and len(configured) == 2:
        configured = configured[0]
    if isinstance(configured, dict):
        configured = configured.get("optimizer")
    if isinstance(configured, (list, tuple)) and len(configured) == 1:
        configured = configured[0]
    if not isinstance(configured, torch.optim.Optimizer):
        raise ValueError(f"expected one optimizer from configure_optimizers, got {type(configured).__name__}")
    return configured


Feed = Callable[[int, torch.device, "torch.Generator | None"], Any]
"""(size, device, generator) → inputs, or a Batch."""


def get(spec: Spec, shapes: Sequence[Shape] = (), maker: Spec | None = None, /, **hyper: int) -> Workload:
    """Return the workload of a function. shapes: of the model's inputs; maker: name of a function that makes batches,
    which is used in place of shapes.

    Raises ValueError, in one line, for a function that is missing, fails, or returns something else, and for a model
    without inputs; Unavailable for one that wants to download.
    """
    module = load(spec)
    function = member(module, spec)
    sizes = _sizes(spec, function, hyper)
    with building(spec.text):
        result = function(**sizes)
    if isinstance(result, Workload):
        return replace(result, name=spec.text)
    model, inputs = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    if not isinstance(model, torch.nn.Module):
        returns = "a torch.nn.Module, (module, inputs), (module, function that makes inputs) or a Workload"
        raise ValueError(f"{spec.text}: expected {returns}; got {_type_text(result)}")
    feed, parameters = _feed(spec, module, inputs, shapes, maker), forward_parameters(model)
    own_loss = getattr(module, f"{spec.function}_loss", None)
    base = next((parent for parent in type(model).__mro__ if parent.__name__ == "LightningModule"), None)
    has_own = base and getattr(type(model), "training_step", None) is not getattr(base, "training_step", None)
    steps_itself = own_loss is None and bool(has_own)  # by a LightningModule's training step
    built, unused = [stepping(model, spec.text) if steps_itself else model], [model]

    def build(**sizes: int) -> torch.nn.Module:
        """Return a new model; the first time the one that exists already, if it is on the default device."""
        again: Any = unused.pop() if unused else None
        if again is None or any(p.device != torch.get_default_device() for p in again.parameters()):
            with building(spec.text):
                again = function(**sizes)
            again = again[0] if isinstance(again, tuple) else again
        built[0] = stepping(again, spec.text) if steps_itself else again
        return built[0].train()

    def batch(_hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None) -> Batch:
        fed = feed(size, device, generator)
        if isinstance(fed, Batch) or steps_itself:
            return as_batch(fed)
        try:
            plain, named = split(fed)
        except ValueError as fault:
            raise ValueError(f"{spec.text}: {fault}") from fault
        return Batch(positional(parameters, plain, named), None)

    return Workload(
        name=spec.text,
        task="general",
        hyper=sizes,
        build=build,
        batch=batch,
        loss=own_loss or (loss_of_step if steps_itself else mean_loss),
        source=spec.text,
        optimizer=(lambda _parameters: configured_optimizer(built[0])) if steps_itself else None,
    )


def load(spec: Spec) -> ModuleType:
    """Return the module of a function, imported, or run from its file. Raises ValueError or Unavailable with the
    exception that was raised there."""
    check(spec.text)
    with building(f"{spec.text}: importing {spec.target}"):
        return _run(Path(spec.target).expanduser()) if spec.form == "file" else importlib.import_module(spec.target)


def _run(path: Path) -> ModuleType:
    """Run a file as a module, once per process and content, because torch may crash if an operator is defined twice.

    A file that holds modules or tensors is run again, as they may have been trained, moved or made without values. Its
    directory is added to the end of `sys.path`.
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
    """Return the function. Raises ValueError if it is missing, with the nearest name, or cannot be called."""
    function = getattr(module, spec.function, None)
    if function is None:
        names = [name for name, value in vars(module).items() if callable(value)]
        raise ValueError(f"{spec.target} has no {spec.function!r}{nearest(spec.function, names)}")
    if not callable(function):
        raise ValueError(f"{spec.text}: expected a function, got {_type_text(function)}")
    return function  # type: ignore[no-any-return]


def _sizes(spec: Spec, function: Callable[..., Any], chosen: Mapping[str, int]) -> dict[str, int]:
    """Return the function's parameters that are whole numbers, the chosen ones in place of its defaults."""
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


def _feed(spec: Spec, module: ModuleType, inputs: Any, shapes: Sequence[Shape], maker: Spec | None) -> Feed:
    """Return the function that makes the inputs. They come from --batch, --input, the function's result, or NAME_batch
    of the same file; the first of these that is there is used."""
    if maker is not None:
        return partial(_named_maker, maker, member(load(maker), maker))
    if shapes:
        return lambda size, device, generator: (
            *(draw(shape, size, device, generator) for shape in shapes if not shape.name),
            {shape.name: draw(shape, size, device, generator) for shape in shapes if shape.name},
        )
    if inputs is None:
        inputs = getattr(module, f"{spec.function}_batch", None)
    if inputs is None:
        raise ValueError(
            f"{spec.text} gives no inputs: add --input 3x224x224, or return (module, inputs), or define "
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


def _type_text(value: Any) -> str:
    """Name a value by its type."""
    if isinstance(value, tuple):
        return f"({', '.join(type(part).__name__ for part in value)})"
    return f"a {type(value).__name__}"
