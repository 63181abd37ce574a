"""Makes a `Workload` of any model by the name that a user types: "timm:vit_small_patch16_224", "net.py:build".

Every command that takes models calls `get`. `get` reads the form of the name (`workloads/catalogue/model_names.py`) and
calls the module for that form; this module knows no architecture. `docs/models.md` describes forms, inputs and errors.
The user's code runs within `building`. In this context the process cannot look up hosts, so that nothing is downloaded;
a child process still can. Counters call `model(*inputs)`. Inputs with names are therefore bound to their positions in
`forward`. Inputs that can only be passed by name are refused, since a wrapper would change the modules' paths.
"""

import contextlib
import inspect
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from traceback import extract_tb
from typing import Any, NoReturn

import torch
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_leaves, tree_map

from results.errors import Unavailable, plain_message
from results.process import free_bytes, load
from workloads.catalogue.base import Batch, Workload, mean_loss, tensors
from workloads.catalogue.catalogue import entry, factory
from workloads.catalogue.model_names import Shape, Spec, check, nearest, parse, parse_shapes


def fault_text(fault: BaseException) -> str:
    """Return an exception in one line: its type and message; without a message (a bare assert), the line of code that
    raised it."""
    frames = [frame for frame in extract_tb(fault.__traceback__) if frame.name != "_assert"]  # torch's own for fx
    message = str(fault) or (frames[-1].line if frames else "") or ""
    return plain_message(f"{type(fault).__name__}: {' '.join(message.split())[:300]}")


@contextlib.contextmanager
def building(what: str) -> Iterator[None]:
    """Turn exceptions of the code within the context into a ValueError of one line that begins with `what`.

    A missing package, or an attempt to download, raises Unavailable. MemoryError passes through.
    """
    try:
        with offline(what):
            yield
    except (Unavailable, MemoryError):
        raise
    except ImportError as fault:
        raise Unavailable(f"{what} raised {fault_text(fault)}") from fault
    except SystemExit as fault:
        raise ValueError(f"{what} called sys.exit({fault.code!r}): expected it to return a model") from fault
    except Exception as fault:
        raise ValueError(f"{what} raised {fault_text(fault)}") from fault


@contextlib.contextmanager
def offline(what: str) -> Iterator[None]:
    """Raise Unavailable if code within the context looks for a host, naming the host and `what`.

    Unavailable is not an OSError, so that no library takes it for a network that may come back.
    """
    for switch in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        os.environ[switch] = "1"
    hub = sys.modules.get("huggingface_hub.constants")
    if hub is not None:
        hub.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]
    original = socket.getaddrinfo

    def refuse(host: Any, *_: Any, **__: Any) -> NoReturn:
        raise Unavailable(f"{what} wants to download from {host}: nothing is downloaded; build it with random weights")

    socket.getaddrinfo = refuse
    try:
        yield
    finally:
        socket.getaddrinfo = original


def draw(shape: Shape, size: int, device: torch.device, generator: torch.Generator | None) -> torch.Tensor:
    """Draw size × shape: standard normal numbers, uniform whole numbers from 0 to `shape.below` - 1, or random bits."""
    sizes, dtype = (size, *shape.sizes), getattr(torch, shape.dtype)
    if shape.below:
        return torch.randint(0, shape.below, sizes, dtype=dtype, device=device, generator=generator)
    if dtype is torch.bool:
        return torch.randint(0, 2, sizes, device=device, generator=generator) > 0
    return torch.randn(sizes, device=device, generator=generator).to(dtype)


def split(value: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Split a function's inputs into (positional, by name): a tensor, a dict, or a list or tuple.

    If the last of several is a dict, it holds inputs by name, as in torch.onnx.export; for a model that takes a dict as
    its last argument an empty dict follows it. Raises ValueError for anything else.
    """
    if isinstance(value, torch.Tensor | PackedSequence):
        return (value,), {}
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return (), dict(value)
    if not isinstance(value, (list, tuple)):
        raise ValueError(
            f"expected inputs: a tensor, a dict of names, or a tuple of inputs; got {type(value).__name__}"
        )
    if value and isinstance(value[-1], Mapping):
        return tuple(value[:-1]), dict(value[-1])
    return tuple(value), {}


def forward_parameters(model: torch.nn.Module | type[torch.nn.Module]) -> tuple[inspect.Parameter, ...]:
    """Return the parameters of a model's `forward`, or of a class's, without the model itself."""
    parameters = tuple(inspect.signature(model.forward).parameters.values())
    return parameters[1:] if isinstance(model, type) else parameters


def positional(
    parameters: Sequence[inspect.Parameter], inputs: Sequence[Any], named: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Return all inputs in the order of `forward`'s parameters, its defaults where a parameter before the last is not
    given.

    Raises ValueError for a name that it does not take, Unavailable for one that has no position (keyword-only, or
    swallowed by **kwargs) or that follows a parameter without default.
    """
    if not named:
        return tuple(inputs)
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    order = [parameter for parameter in parameters if parameter.kind in kinds]
    positions = {parameter.name: index for index, parameter in enumerate(order)}
    for name in named:
        _check_has_position(name, positions, parameters, len(inputs))
    last = max(positions[name] for name in named)
    rest = [_argument(parameter, named) for parameter in order[len(inputs) : last + 1]]
    return (*inputs, *rest)


def _check_has_position(
    name: str, positions: Mapping[str, int], parameters: Iterable[inspect.Parameter], taken: int
) -> None:
    if name in positions:
        if positions[name] < taken:
            raise ValueError(f"input {name!r} is given twice: by its name and as input {positions[name] + 1}")
        return
    kinds = {parameter.kind for parameter in parameters}
    keyword_only = {p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
    if name in keyword_only or inspect.Parameter.VAR_KEYWORD in kinds:
        raise Unavailable(
            f"forward takes {name!r} by name only; counters pass inputs by position{nearest(name, positions)}"
        )
    raise ValueError(
        f"forward takes no {name!r}; it takes {', '.join(positions) or 'nothing'}{nearest(name, positions)}"
    )


def _argument(parameter: inspect.Parameter, named: Mapping[str, Any]) -> Any:
    if parameter.name in named:
        return named[parameter.name]
    if parameter.default is inspect.Parameter.empty:
        raise Unavailable(f"forward needs {parameter.name!r}, which is not among the inputs: {', '.join(named)}")
    return parameter.default


def resized(example: Any, size: int, device: torch.device) -> Any:
    """Return the example with `size` samples in dimension 0 of every tensor, by repeating its samples; anything else is
    unchanged.

    Tensors keep their requires_grad, memory layout and identity. Raises ValueError if they do not agree in dimension 0,
    or are not rectangular.
    """
    for leaf in tree_leaves(example):
        check_dense(leaf)
    batches = {leaf.shape[0] for leaf in tree_leaves(example) if isinstance(leaf, torch.Tensor) and leaf.dim()}
    if len(batches) > 1:
        sizes = " and ".join(str(batch) for batch in sorted(batches))
        raise ValueError(f"expected inputs whose dimension 0 is the batch, all the same; got {sizes}: give a function")
    if batches == {0}:
        raise ValueError("expected inputs of one sample or more in dimension 0; got none")

    fitted: dict[int, Any] = {}

    def fit(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in fitted:
            fitted[id(leaf)] = _of_size(leaf.detach().to(device), size).requires_grad_(leaf.requires_grad)
        return fitted[id(leaf)]

    return tree_map(fit, example)


def check_dense(value: Any) -> None:
    """Raise ValueError, one line with what to do, for a nested or sparse tensor: the FLOP of operations on it depend on
    its values, which are not counted."""
    if not isinstance(value, torch.Tensor) or (value.layout is torch.strided and not value.is_nested):
        return
    if value.is_nested:
        raise ValueError(
            "a nested tensor is not counted, because its rows differ in length: give them padded to one length, "
            "or give one row as the batch"
        )
    raise ValueError(f"a tensor of layout {value.layout} is not counted: give a dense one (value.to_dense())")


def _of_size(example: torch.Tensor, size: int) -> torch.Tensor:
    """Return the example with `size` samples, by repeating its samples, in its memory order of dimensions."""
    if not example.dim() or example.shape[0] == size:
        return example
    chosen = example[torch.arange(size, device=example.device) % example.shape[0]]
    order = sorted(range(example.dim()), key=lambda dimension: -example.stride()[dimension])
    fitted = torch.empty_permuted(chosen.shape, order, dtype=chosen.dtype, device=chosen.device)
    return fitted.copy_(chosen)


def reason(model: torch.nn.Module, inputs: Sequence[Any]) -> str:
    """Return which module fails in model(*inputs) and why, in one line; "" if none does."""
    paths = {id(module): path for path, module in model.named_modules()}
    failed: list[tuple[BaseException | None, str]] = []  # innermost first: an exception, and a module that it left

    def leave(module: torch.nn.Module, arguments: Any, _output: Any) -> None:
        fault = sys.exception()
        if fault is not None:
            path, kind = paths.get(id(module), ""), type(module).__name__
            failed.append((fault, f"{f'{path} ({kind})' if path else kind} got {shapes(arguments)}"))

    handle = register_module_forward_hook(leave, always_call=True)
    held = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        with torch.no_grad():
            model(*inputs)
    except Exception as fault:  # noqa: BLE001  any way to fail is the answer
        where = next(
            (location for seen, location in failed if seen is fault), f"{type(model).__name__} got {shapes(inputs)}"
        )
        return f"{where}: {fault_text(fault)}"
    finally:
        handle.remove()
        with torch.no_grad():
            for buffer, before in held:
                buffer.copy_(before)
    return ""


def mismatch(workload: Workload, batch: Batch) -> str:
    """Return why a user's batch is refused, in one line: its inputs have other sizes or types than the workload's batch
    of the same size; "" if it fits."""
    size = next((tensor.shape[0] for tensor in tensors(batch.inputs) if tensor.dim()), 0)
    if not size:
        return f"{workload.name}: expected a batch of one sample or more, got {shapes(batch.inputs)}"
    wanted = shapes(workload.batch(workload.hyper, size, torch.device("meta"), None).inputs)
    got = shapes(batch.inputs)
    return "" if got == wanted else f"{workload.name} cannot take this batch: expected {wanted}, got {got}"


def shapes(inputs: Any) -> str:
    """Return the sizes and types of all tensors among the inputs: "2x3x224x224 float32, 2x128 int64"; "no tensor"."""
    texts = [
        f"{'x'.join(map(str, t.shape)) or 'scalar'} {str(t.dtype).removeprefix('torch.')}" for t in tensors(inputs)
    ]
    return ", ".join(texts) or "no tensor"


FIXED_SIZES = {"classification": 3, "segmentation": 3, "video": 4}
"""Task of a torchvision model → dimensions of one of its samples: 3 × S × S, or 3 × T × S × S."""


OWN_INPUTS = ("detection", "language", "translation", "speech", "embedding")
"""Tasks whose models take more than one tensor, or whole numbers below a bound that is one of their sizes."""


SOURCES = {
    "timm": "workloads.library_models:timm_workload",
    "hf": "workloads.library_models:transformers_workload",
    "file": "workloads.user_models:get",
    "module": "workloads.user_models:get",
}
"""Form of a name → the function that makes its workload, imported on demand."""


def get(spec: str, /, *, input: str = "", batch: str = "", **hyper: int) -> Workload:  # noqa: A002  as the option is named
    """Return the workload of any model. input: shapes as `--input` takes them; batch: "file.py:function" that makes
    batches.

    hyper: sizes of the model: those of the catalogue (image_size, num_classes, hidden, …), seq of transformers, or the
    whole-number parameters of a function. Raises ValueError (the caller's mistake) or Unavailable (not installed, or
    would be downloaded), each one line.
    """
    known = check(spec)
    shapes = parse_shapes(input) if input else ()
    if batch and known.form not in ("file", "module"):
        raise ValueError(f"{spec}: a function that makes batches goes with one that makes the model; got {batch}")
    if known.form == "catalogue":
        workload = _catalogue(known, shapes, hyper)
    else:
        workload = load(SOURCES[known.form])(known, shapes, *([parse(batch)] if batch else []), **hyper)
    if known.form in ("file", "module"):
        return workload
    return replace(workload, build=partial(_checked, spec, workload.build))


def _checked(text: str, build: Callable[..., torch.nn.Module], **hyper: int) -> torch.nn.Module:
    """Return the model. Raises Unavailable if its weights, counted without making any, exceed the memory."""
    available = free_bytes()
    if available is None or torch.get_default_device().type == "meta":
        return build(**hyper)
    needed = 0
    with contextlib.suppress(Exception), torch.device("meta"):  # unknown for a model that cannot be built there
        needed = 2 * sum(parameter.nbytes for parameter in build(**hyper).parameters())
    if needed > available:
        raise Unavailable(
            f"{text}: weights and gradients are {needed / 1e9:.1f} GB, and {available / 1e9:.1f} GB are free: "
            "make it smaller (fewer layers)"
        )
    return build(**hyper)


def _catalogue(spec: Spec, shapes: Sequence[Shape], hyper: Mapping[str, int]) -> Workload:
    name, task = spec.target, entry(spec.target).task
    getter: Callable[..., Workload] = load(factory(name))
    sizes = _sizes_of(shapes, task)
    if not shapes or sizes:
        return getter(name, **{**hyper, **sizes})
    if task in OWN_INPUTS or any(shape.name for shape in shapes):
        first = ",".join(f"{size}={value}" for size, value in list(entry(name).hyper.items())[:2])
        raise ValueError(f"{name}: expected no --input, as sizes decide its inputs: give them, as in --size {first}")

    def batch(_hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None) -> Batch:
        return Batch(tuple(draw(shape, size, device, generator) for shape in shapes), None)

    return replace(getter(name, **hyper), batch=batch, loss=mean_loss)


def _sizes_of(shapes: Sequence[Shape], task: str) -> dict[str, int]:
    """Return the workload's sizes for one input of three channels and equal sides; empty for any other input."""
    if len(shapes) != 1 or len(shapes[0].sizes) != FIXED_SIZES.get(task) or shapes[0].dtype != "float32":
        return {}
    channels, *frames, height, width = shapes[0].sizes
    if channels != 3 or height != width or shapes[0].name:
        return {}
    return {"image_size": height} | ({"frames": frames[0]} if frames else {})
