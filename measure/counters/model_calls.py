"""Records the calls of a model's forward and backward pass: modules, functions that counters watch, operations.

`record` takes a model and its inputs and returns a `CallRecording`, by which `cleaning/accounts` explains why counters
differ. Nothing is counted here. Listeners replace functions where counters replace them (`torch.nn.functional`,
`torch`, `torch.Tensor`). So the recording and the counters both miss a call through a name that was imported earlier.
Calls by a kernel written in Python are left out. torch is patched in the whole process meanwhile: call `record` in a
separate process. `plain_calls` records a step as the counter torch_profiler does, on real tensors without a dispatch
mode. Without that mode, gradient accumulation and a linear layer's bias addition run as in-place operations, and
operations that a checkpoint recomputes lie inside composite operators (such as `aten::linear`), which do not reach the
dispatcher.
"""

import contextlib
import dataclasses
import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from unittest.mock import patch

import torch
import torch.fx
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import flop_registry

from measure.model.attention_masks import mask_rules
from measure.model.module_paths import MODULE as PATH
from measure.model.module_paths import ModuleRanges
from measure.model.state_snapshot import evaluating, sum_of_outputs, tensors
from measure.operations.fake_mode import NOT_ON_FAKE, FakeMode, fake_copy, fake_mode
from measure.operations.tracer import Recorder
from results.errors import Unavailable, one_line, plain_message
from results.records.calls import APPLIED, FUNCTION, MODULE, Call, CallRecording, ModuleInfo, PlainCall, Sized

FUNCTIONAL = (
    "linear bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
    "relu relu_ prelu elu leaky_relu relu6 silu gelu "
    "batch_norm layer_norm instance_norm group_norm rms_norm "
    "avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
    "adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d "
    "upsample interpolate grid_sample softmax embedding scaled_dot_product_attention multi_head_attention_forward"
)
TORCH = (
    "matmul mm bmm mv dot addmm baddbmm addbmm mul add einsum "
    "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d batch_norm layer_norm group_norm"
)
METHODS = (
    "matmul __matmul__ __rmatmul__ mm bmm mv addmm baddbmm mul __mul__ __rmul__ __imul__ mul_ "
    "add __add__ __radd__ __iadd__ add_"
)

WATCHED: tuple[tuple[str, Any, str], ...] = (
    ("F", torch.nn.functional, FUNCTIONAL),
    ("torch", torch, TORCH),
    ("Tensor", torch.Tensor, METHODS),
)
"""(prefix of functions' names in a recording, their owner, the names that are watched there)."""

FX = "fx."
"""Prefix in a recording of functions that their authors wrapped for torch.fx."""

_FUNCTION: Any = torch.autograd.Function

PLAIN = (bool, int, float, str, type(None))


def record(model: torch.nn.Module, inputs: tuple[Any, ...], *, plain: bool = True) -> CallRecording:
    """Record model(*inputs) forward, and the backward pass of the sum of its outputs, as counters run them: in eval
    mode.

    It runs on fake tensors if the model can, else on the real ones, with a note in the recording. plain: whether the
    model also runs on its real tensors without listeners (`plain_calls`). The model is left as it was. Raises
    Unavailable for a model with scripted modules, and whatever the model raises.
    """
    scripted = next((path for path, m in model.named_modules() if isinstance(m, torch.jit.ScriptModule)), None)
    if scripted is not None:
        raise Unavailable(
            f"{scripted or 'the model'} is scripted, and what torch.jit runs cannot be recorded: "
            "count the module that it was made from"
        )
    unwatched = plain_calls(model, inputs) if plain else ()
    with evaluating(model):
        try:
            mode = fake_mode()
            copied, fakes = fake_copy(model, inputs, mode)
            recording = _record(copied, fakes, mode)
        except NOT_ON_FAKE as fault:
            note = f"recorded on real tensors: {one_line(plain_message(str(fault)), 200)}"
            recording = dataclasses.replace(_record(model, inputs, None), note=note)
    formulas = frozenset(map(str, flop_registry))
    return dataclasses.replace(recording, plain=unwatched, mask_rules=mask_rules(model), formulas=formulas)


def _record(model: torch.nn.Module, inputs: tuple[Any, ...], mode: FakeMode | None) -> CallRecording:
    with contextlib.nullcontext() if mode is None else mode:
        recorder = Recorder(model, None, inputs)
        listener = CallListener(model, recorder)
        sources = listener.storages([*model.parameters(), *tensors(inputs)])
        with recorder.recording(mode):
            recorder.mark("forward")
            with listener.listening():
                outputs = model(*inputs)
            results = listener.storages(tensors(outputs))
            recorder.mark("loss")
            total = sum_of_outputs(outputs)
            if total is not None:
                recorder.mark("backward")
                total.backward()
            recorder.mark("end")
    return CallRecording(
        operations=recorder.trace().operations,
        calls=tuple(listener.calls()),
        modules=listener.modules,
        batch=len(inputs[0]) if inputs and hasattr(inputs[0], "__len__") and len(inputs[0]) else 1,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        sources=sources,
        results=results,
    )


class CallListener:
    """Records the calls of all modules of a model and of the watched functions, while `listening`."""

    def __init__(self, model: torch.nn.Module, recorder: Recorder) -> None:
        self._recorder = recorder
        self._serials = {id(module): serial for serial, module in enumerate(model.modules())}
        modules: list[ModuleInfo] = []
        for path, module in model.named_modules():
            settings = {
                name: value
                for name, value in vars(module).items()
                if not name.startswith("_")
                and all(isinstance(part, PLAIN) for part in (value if isinstance(value, tuple) else (value,)))
            }
            modules.append(
                ModuleInfo(
                    serial=self._serials[id(module)],
                    path=path,
                    type=_type_name(type(module)),
                    bases=tuple(_type_name(base) for base in type(module).__mro__[1:-1]),
                    settings=settings,
                    parameters={name: tuple(p.shape) for name, p in module.named_parameters(recurse=False)},
                    children=tuple((name, self._serials[id(child)]) for name, child in module.named_children()),
                )
            )
        self.modules = tuple(modules)
        self._paths = dict(model.named_modules(remove_duplicate=False))
        self._records: list[dict[str, Any]] = []
        self._open: list[int] = []
        self._around: list[tuple[str, int]] = [("", 0)]  # (path, serial) of the modules that run now
        self._names: dict[int, list[str]] = {}
        self._sized = functools.partial(_sizes, storage_of=recorder.storage_of)
        for path, module in self._paths.items():
            self._names.setdefault(id(module), []).append(path)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Hook modules and patch functions within the context; restore both after it."""
        watched = [(f"{library}.{name}", owner, name) for library, owner, names in WATCHED for name in names.split()]
        if "einops" in sys.modules:  # a counter installs it; a model that uses it has imported it
            watched.append(("einops.einsum", sys.modules["einops"], "einsum"))
        with contextlib.ExitStack() as stack:
            stack.callback(register_module_forward_pre_hook(self._enters_module).remove)
            stack.callback(register_module_forward_hook(self._leaves_module, always_call=True).remove)
            for called, owner, name in watched:
                if hasattr(owner, name):
                    stack.enter_context(patch.object(owner, name, self._listener(called, getattr(owner, name))))
            wrapped = getattr(torch.fx._symbolic_trace, "_wrapped_fns_to_patch", {})  # graphs of torch.fx stop there
            for (_, name), space in wrapped.items():
                if isinstance(space, dict) and callable(space.get(name)):  # a module's globals
                    stack.callback(space.__setitem__, name, space[name])
                    space[name] = self._listener(f"{FX}{name}", space[name])
            stack.enter_context(patch.object(_FUNCTION, "apply", self._applied(vars(_FUNCTION)["apply"])))
            yield

    def calls(self) -> Iterator[Call]:
        """Return the recorded calls."""
        return (Call(index=index, **record_fields) for index, record_fields in enumerate(self._records))

    def storages(self, tensors: Iterable[torch.Tensor]) -> frozenset[int]:
        """Return the numbers of the storages of these tensors."""
        numbers = map(self._recorder.storage_of, tensors)
        return frozenset(number for number in numbers if number is not None)

    def _listener(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def listen(*arguments: Any, **keywords: Any) -> Any:
            if self._recorder.busy:
                return function(*arguments, **keywords)
            path, serial = self._around[-1]
            self._begin(FUNCTION, name, path, serial, arguments, keywords)
            output = None
            try:
                output = function(*arguments, **keywords)
                return output
            finally:
                self._end(output)

        return listen

    def _applied(self, original: Any) -> Any:
        """Return `Function.apply` wrapped to be recorded, bound to the class on which it is called."""

        def apply(kind: type, *arguments: Any, **keywords: Any) -> Any:
            return self._listener(APPLIED, original.__get__(None, kind))(*arguments, **keywords)

        return classmethod(apply)

    def _enters_module(self, module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        serial = self._serials.get(id(module), -1)
        path = self._path(module)
        self._around.append((path, serial))
        self._begin(MODULE, _type_name(type(module)), path, serial, inputs, {})

    def _leaves_module(self, _module: torch.nn.Module, _inputs: Any, output: Any) -> None:
        self._end(output)
        self._around.pop()

    def _path(self, module: torch.nn.Module) -> str:
        """Return the module's path below the calling module, else its first path; for a module outside of the model the
        path of the calling module."""
        paths = self._names.get(id(module))
        if not paths:
            return self._around[-1][0]
        caller = self._around[-1][0]
        return next((path for path in paths if path.startswith(f"{caller}." if caller else "")), paths[0])

    def _begin(self, what: str, name: str, path: str, serial: int, arguments: Any, keywords: Any) -> None:
        self._records.append(
            {
                "parent": self._open[-1] if self._open else None,
                "what": what,
                "name": name,
                "path": path,
                "serial": serial,
                "arguments": self._sized(arguments),
                "keywords": self._sized(keywords),
                "output": None,
                "first": self._recorder.position,
                "last": -1,
            }
        )
        self._open.append(len(self._records) - 1)

    def _end(self, output: Any) -> None:
        record_fields = self._records[self._open.pop()]
        record_fields["output"], record_fields["last"] = self._sized(output), self._recorder.position


def _type_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _sizes(value: Any, storage_of: Callable[[torch.Tensor], int | None]) -> Any:
    """Return a value with tensors replaced by their sizes, and objects that are not containers by their type's name."""
    if isinstance(value, torch.Tensor):
        return Sized(tuple(int(size) for size in value.shape), storage_of(value))
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, (tuple, list)):
        return tuple(_sizes(part, storage_of) for part in value)
    if isinstance(value, Mapping):
        return {str(name): _sizes(part, storage_of) for name, part in value.items()}
    return _type_name(type(value))


NAMES = frozenset(("aten::add", "aten::mul"))
PRODUCTS = frozenset(("aten::conv2d", "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"))
FORWARD_ONLY = (PATH, "aten::conv2d", "aten::linear")
"""Names that no formula of a derivative calls: in a backward pass they, and the calls inside them, are
recomputation."""


def plain_calls(model: torch.nn.Module, inputs: tuple[Any, ...]) -> tuple[PlainCall, ...]:
    """Return every call of add and mul in a forward and a backward pass, and the calls of products that are recomputed
    or inside of another operator. Calls of the backward pass itself have no module."""
    with evaluating(model), ModuleRanges(model):
        with _recording() as forward:
            outputs = model(*inputs)
        calls = [*_calls(forward, backward=False)]
        total = sum_of_outputs(outputs)
        if total is not None:
            with _recording() as backward:
                total.backward()
            calls += _calls(backward, backward=True)
    return tuple(calls)


def _recording() -> profile:
    return profile(activities=[ProfilerActivity.CPU], record_shapes=True, acc_events=True)


def _calls(recording: profile, backward: bool) -> Iterator[PlainCall]:
    events = sorted(recording.events(), key=lambda event: event.time_range.start)
    phases, numbers, seen = {}, {}, Counter[tuple[str, str]]()
    for event in events:
        again = backward and any(around.name.startswith(FORWARD_ONLY) for around in _with_parents(event))
        phase = phases[id(event)] = "recompute" if again else "backward" if backward else "forward"
        numbers[id(event)] = seen[phase, event.name]
        seen[phase, event.name] += 1
    for event in events:
        if event.name not in NAMES | PRODUCTS:
            continue
        whole = [around for around in _with_parents(event.cpu_parent) if _is_whole(around.name)]
        inside = () if event.name in NAMES else tuple((_aten(e.name), numbers[id(e)]) for e in whole)
        if event.name in NAMES or inside or phases[id(event)] == "recompute":
            path = next((around.name for around in _with_parents(event) if around.name.startswith(PATH)), PATH)
            shapes = tuple(tuple(shape) for shape in event.input_shapes)
            yield PlainCall(phases[id(event)], _aten(event.name), path.removeprefix(PATH), shapes, inside)


@functools.cache
def _is_whole(name: str) -> bool:
    """Return whether an operator reaches the dispatcher as itself: not `linear`, which arrives as addmm or mm."""
    space, _, bare = name.partition("::")
    packet = getattr(getattr(torch.ops, space), bare, None) if bare else None
    if packet is None:
        return False
    return not any(map(_is_composite, {name, *(f"{name}.{overload}" for overload in packet.overloads())}))


def _is_composite(overload: str) -> bool:
    """Return whether an overload is made of other operators; False for one of TorchScript's, which the dispatcher does
    not know."""
    try:
        return torch._C._dispatch_has_kernel_for_dispatch_key(overload, "CompositeImplicitAutograd")
    except RuntimeError:
        return False


def _aten(name: str) -> str:
    return name.replace("::", ".")


def _with_parents(event: Any) -> Iterator[Any]:
    """Yield an event, then the events around it."""
    while event is not None:
        yield event
        event = event.cpu_parent
