"""An exported program (`torch.export.save`) as a graph that can be built and trained.

The program is unflattened: modules and parameters have the paths that they had. What was exported in evaluation mode
trains: the operations of a literal table (`TRAINING`) are told that they train, unless the graph is decomposed beyond
them. Devices written into the graph become the one asked for. Nothing pickled is run
(`workloads/sources/torch_archives.py`).
"""

from __future__ import annotations

import contextlib
import copy
import logging
import pickle
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram, UnflattenedModule
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.export.unflatten import InterpreterModule
from torch.utils._pytree import TreeSpec, tree_unflatten

from workloads.sources.file_inputs import UNKNOWN_BELOW, GraphInput, identifier
from workloads.sources.files import Graph
from workloads.sources.torch_archives import check, check_operations, only_weights
from workloads.training import fault_text

TRAINING: Mapping[str, str] = {
    "aten.batch_norm.default": "training",
    "aten.dropout.default": "train",
    "aten.feature_dropout.default": "train",
    "aten.alpha_dropout.default": "train",
    "aten.instance_norm.default": "use_input_stats",
    "aten.lstm.input": "train",
    "aten.gru.input": "train",
    "aten.rnn_tanh.input": "train",
    "aten.rnn_relu.input": "train",
}
"""Operation → its argument that says whether it trains."""

CHECKS = (
    "aten._assert_tensor_metadata.default",
    "aten._assert_scalar.default",
    "aten.sym_constrain_range_for_size.default",
)
"""Operations that only check what was true when the program was exported, its device among them."""

FOLLOWED = (
    "to",
    "view",
    "reshape",
    "slice",
    "unsqueeze",
    "squeeze",
    "expand",
    "clone",
    "contiguous",
    "transpose",
    "select",
)
"""Operations of aten that hand whole numbers on as they are."""


class Part(torch.nn.Module):
    """A module of the program: its own parameters, buffers and children, and the code that runs them.

    It runs the same operations in training and in evaluation. outputs: how those of the whole program are nested.
    """

    def __init__(self, run: Callable[..., Any], outputs: TreeSpec | None = None) -> None:
        super().__init__()
        self._run = run
        self._outputs = outputs

    def forward(self, *inputs: Any, **named: Any) -> Any:
        made = self._run(self, *inputs, **named)
        return made if self._outputs is None else tree_unflatten(made, self._outputs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Part:
        other = Part(self._run, self._outputs)
        memo[id(self)] = other
        other.__dict__.update(
            {n: copy.deepcopy(v, memo) for n, v in vars(self).items() if n not in ("_run", "_outputs")}
        )
        return other


def read(path: str) -> Graph:
    """The program in this file. Raises ValueError in one line that begins with the path."""
    program = load(path)
    inputs = tuple(_inputs(program))
    symbols = _symbols(program)
    limits = {name: _limits(symbol, program) for name, symbol in symbols.items()}
    defaults = {name: max(_default(symbol, program), limits[name][0]) for name, symbol in symbols.items()}
    return Graph(inputs, defaults, limits, partial(_build, path, program))


def load(path: str) -> ExportedProgram:
    """The program, read as data. Raises ValueError, in one line, for a file that is damaged, of another version, or
    holds what is not loaded here."""
    check(path)
    logged: list[BaseException] = []
    try:
        with only_weights(), _quiet(logged):
            program = torch.export.load(path)
    except pickle.UnpicklingError as fault:  # torch's own words advise to read it as code
        text = f"{path} holds an object in its sample inputs, which is not loaded: only tensors are"
        raise ValueError(text) from fault
    except Exception as fault:
        cause = _first_cause(logged[0] if logged else fault)  # torch logs the cause and raises another
        raise ValueError(f"{path} cannot be loaded by torch {torch.__version__}: {fault_text(cause)}") from fault
    check_operations(path, program.graph_module)
    return program


def _first_cause(fault: BaseException) -> BaseException:
    """The exception that this one was raised from, and that one, back to the first."""
    while fault.__cause__ is not None:
        fault = fault.__cause__
    return fault


@contextlib.contextmanager
def _quiet(logged: list[BaseException] | None = None) -> Iterator[None]:
    """Without torch's log of what it is about to raise, and its warnings of its own workings. Exceptions that it logs
    are added to `logged`."""
    logger = logging.getLogger("torch.export")

    def keep(record: logging.LogRecord) -> bool:
        if logged is not None and record.exc_info and record.exc_info[1]:
            logged.append(record.exc_info[1])
        return False

    logger.addFilter(keep)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given buffer is not writable")
            warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\)", category=FutureWarning)
            yield
    finally:
        logger.removeFilter(keep)


def _inputs(program: ExportedProgram) -> Iterable[GraphInput]:
    """What forward takes, in order. Sizes in the names of dimensions, constants as they were exported."""
    names = {symbol: sympy.Symbol(name, integer=True, positive=True) for name, symbol in _symbols(program).items()}
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    for spec in program.graph_signature.input_specs:
        if spec.kind != InputKind.USER_INPUT:
            continue
        if isinstance(spec.arg, ConstantArgument):
            yield GraphInput(spec.arg.name, is_tensor=False, fixed=spec.arg.value)
            continue
        value = nodes[spec.arg.name].meta["val"]
        if not isinstance(value, torch.Tensor):
            yield GraphInput(spec.arg.name, is_tensor=False, fixed=int(value))
            continue
        sizes = tuple(sympy.sympify(_expression(size)).subs(names) for size in value.shape)
        kind = str(value.dtype).removeprefix("torch.")
        yield GraphInput(spec.arg.name, sizes, kind, _below(nodes[spec.arg.name]))


def _symbols(program: ExportedProgram) -> dict[str, sympy.Symbol]:
    """Name → symbol of each dynamic dimension: INPUT_AXIS, after the first input that has it alone. A file does not
    keep the names of torch.export.Dim."""
    found: dict[sympy.Symbol, str] = {}
    users = set(program.graph_signature.user_inputs)
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in users and isinstance(node.meta.get("val"), torch.Tensor):
            for axis, size in enumerate(node.meta["val"].shape):
                expression = _expression(size)
                if isinstance(expression, sympy.Symbol):
                    found.setdefault(expression, identifier(f"{node.name}_{axis}"))
                for symbol in getattr(expression, "free_symbols", ()):
                    found.setdefault(symbol, identifier(str(symbol)))
    return {name: symbol for symbol, name in found.items()}


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else int(size)


def _limits(symbol: sympy.Symbol, program: ExportedProgram) -> tuple[int, int | None]:
    known = program.range_constraints.get(symbol)
    if known is None:
        return 1, None
    upper = int(known.upper) if known.upper.is_finite and known.upper < 2**62 else None
    return max(int(known.lower), 1), upper


def _default(symbol: sympy.Symbol, program: ExportedProgram) -> int:
    """The size that the program was exported with."""
    for node in program.graph.nodes:
        for size in getattr(node.meta.get("val"), "shape", ()):
            if _expression(size) == symbol:
                return int(size.node.hint or 1)
    return 1


def _below(node: torch.fx.Node) -> int:
    """Rows of the smallest table that a placeholder looks into, followed through what does not change numbers."""
    rows, waiting, seen = [], [node], {node}
    while waiting:
        here = waiting.pop()
        for user in here.users:
            name = str(user.target)
            if name.startswith("aten.embedding.") and user.args[1] is here:
                rows.append(int(user.args[0].meta["val"].shape[0]))  # type: ignore[union-attr]
            elif name.split(".")[:1] == ["aten"] and name.split(".")[1] in FOLLOWED and user not in seen:
                seen.add(user)
                waiting.append(user)
    return min(rows, default=UNKNOWN_BELOW)


def _build(path: str, program: ExportedProgram, device: torch.device) -> torch.nn.Module:
    _adapt(program, device)
    try:
        with _quiet():
            unflattened = UnflattenedModule(program)
    except Exception as fault:
        raise ValueError(f"{path}: its modules cannot be distinguished: {fault_text(fault)}") from fault
    signature = unflattened.module_call_graph[0].signature
    if signature is None:
        raise ValueError(f"{path}: expected the signature of the whole program in its call graph, got none")
    model = _plain(unflattened, signature.out_spec, {})
    for parameter in model.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    return model.to(device)


def _plain(module: torch.nn.Module, outputs: TreeSpec | None, made: dict[int, torch.nn.Module]) -> torch.nn.Module:
    """An unflattened module, without its graph, what was known of it at export, and its interpreter."""
    if not isinstance(module, (UnflattenedModule, InterpreterModule)):
        return module
    if id(module) not in made:
        code = type(torch.fx.GraphModule(module, module.graph))  # its own was made before calls of equals were joined
        part = made[id(module)] = Part(code.forward, outputs)
        for name, parameter in module._parameters.items():
            part.register_parameter(name, parameter)
        for name, buffer in module._buffers.items():
            part.register_buffer(name, buffer, name not in module._non_persistent_buffers_set)
        for name, constant in vars(module).items():
            if isinstance(constant, torch.Tensor):  # of the program; it has to move with the module
                part.register_buffer(name, constant, persistent=False)
        for name, child in module._modules.items():
            part._modules[name] = None if child is None else _plain(child, None, made)
    return made[id(module)]


def _adapt(program: ExportedProgram, device: torch.device) -> None:
    """Operations that train, on this device, without the checks of the exported one. Changes the program's graphs."""
    for module in program.graph_module.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        for node in list(module.graph.nodes):
            if str(node.target) in CHECKS and not node.users:
                module.graph.erase_node(node)
                continue
            if node.target is torch.ops.aten.view.default:
                node.target = torch.ops.aten.reshape.default  # other devices have other strides; a view where it can be
            if "device" in node.kwargs:
                node.update_kwarg("device", device)
            if str(node.target) in TRAINING:
                _set(node, TRAINING[str(node.target)], True)
        module.recompile()


def _set(node: torch.fx.Node, name: str, value: Any) -> None:
    """Set an argument of an operation, wherever the call has it."""
    order = [argument.name for argument in node.target._schema.arguments]  # type: ignore[union-attr]
    place = order.index(name)
    if place < len(node.args):
        node.update_arg(place, value)
    else:
        node.update_kwarg(name, value)
