"""What hooks on modules see: which modules a walk over children visits, how often, and why a product had no hook.

Recurrent modules are read as counters do: from the module's own attributes and the sizes of its first input.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from math import prod

from cleaning.accounts.vocabulary.items import Item, first_tensor, in_and_out, other
from results.records.counts import MODULE, Call, CallRecording, ModuleInfo, Operation, tensors

NN = "torch.nn.modules."

Rule = Callable[[ModuleInfo, Call], Iterator[Item]]


def nn(where: str, names: str) -> list[str]:
    """The full names of torch.nn's classes in one of its modules: nn("conv", "Conv1d Conv2d")."""
    return [f"{NN}{where}.{name}" for name in names.split()]


def elements(cause: str, kind: str, output: bool = True) -> Rule:
    """1 an element of the module's output, or of its input."""

    def rule(_module: ModuleInfo, call: Call) -> Iterator[Item]:
        yield other(call, cause, in_and_out(call)[output].numel, kind)

    return rule


def items(recording: CallRecording, rules: Mapping[str, Rule]) -> Iterator[tuple[int, Item]]:
    """(serial of the module, item) of every call of a module whose very class has a rule."""
    for call in recording.calls:
        if call.what == MODULE and call.name in rules and call.serial >= 0:
            for item in rules[call.name](recording.modules[call.serial], call):
                yield call.serial, item


def visits(recording: CallRecording, closed: Collection[str] = ()) -> Counter[int]:
    """Serial → how often a walk from the root comes by: once for each of its parents. closed: classes whose children
    it leaves out."""
    seen: Counter[int] = Counter()

    def walk(serial: int) -> None:
        seen[serial] += 1
        module = recording.modules[serial]
        if module.type not in closed:
            for _, child in module.children:
                walk(child)

    walk(0)
    return seen


def multiplied(found: Iterator[tuple[int, Item]], times: Mapping[int, int]) -> Iterator[Item]:
    """The items, and for what a walk meets several times the rest under a cause of its own."""
    for serial, item in found:
        yield item
        more = times.get(serial, 0) - 1
        if more and item.native:
            yield Item(more * item.native, "module_used_twice", item.kind, item.module)


def fault_of_convolution(module: ModuleInfo, call: Call, otherwise: str = "") -> str:
    """Why a convolution module's number is not that of its product: its input has no batch, or else `otherwise`."""
    given, kernel = first_tensor(call.arguments), module.settings.get("kernel_size")
    bare = given is not None and isinstance(kernel, tuple) and len(given.shape) == len(kernel) + 1
    return "without_batch" if bare else otherwise


def missed(recording: CallRecording, known: Collection[str]) -> Callable[[Operation], str]:
    """The cause for a product that no hook saw. known: the classes with a rule."""
    around = _module_around(recording)

    def why(operation: Operation) -> str:
        module = around(operation)
        if module is not None and module.type == f"{NN}activation.MultiheadAttention":
            return "attention_module_not_seen"
        if operation.kind == "attention":
            return "attention_not_seen"
        if module is not None and module.type not in known and any(base in known for base in module.bases):
            return "subclass_not_seen"
        return "functional_not_seen"

    return missed_recurrent(recording, why)


def missed_recurrent(recording: CallRecording, otherwise: Callable[[Operation], str]) -> Callable[[Operation], str]:
    """The cause for a product in a recurrent layer, which may run as products one by one; `otherwise` for any other."""
    around = _module_around(recording)

    def why(operation: Operation) -> str:
        module = around(operation)
        inside = module is not None and f"{NN}rnn.RNNBase" in module.bases
        return "recurrent_not_seen" if inside or operation.kind == "recurrent" else otherwise(operation)

    return why


def _module_around(recording: CallRecording) -> Callable[[Operation], ModuleInfo | None]:
    """Which module of the model an operation of the forward pass ran in, the innermost; None: in none."""
    calls = [call for call in recording.calls if call.what == MODULE]
    starts = [call.first for call in calls]

    def find(operation: Operation) -> ModuleInfo | None:
        nearest = _nearest(operation.index, starts, calls)
        return None if nearest is None or nearest.serial < 0 else recording.modules[nearest.serial]

    return find


def _nearest(index: int, starts: list[int], calls: list[Call]) -> Call | None:
    """The innermost module call that an operation ran in."""
    for place in range(bisect_right(starts, index) - 1, -1, -1):
        if calls[place].last > index:
            return calls[place]
    return None


GATES = {"RNN": 1, "RNNCell": 1, "GRU": 3, "GRUCell": 3, "LSTM": 4, "LSTMCell": 4}
"""Class → rows of its weights in units of the hidden size."""


@dataclass(frozen=True)
class Recurrent:
    """What counters know of one call. state: width of what a step hands to the next. widths: the inputs' width of each
    layer, first to last, one direction. rows: what each matrix is multiplied by: steps × batch, as the input's first
    sizes tell them, even of packed sequences."""

    gates: int
    hidden: int
    state: int
    widths: tuple[int, ...]
    bias: bool
    directions: int
    rows: int

    @property
    def weights(self) -> Iterator[tuple[int, int]]:
        """(multiply-adds with the input, with the state) of one step, of each layer of one direction."""
        for width in self.widths:
            yield self.gates * self.hidden * width, self.gates * self.hidden * self.state


def read(module: ModuleInfo, call: Call) -> Recurrent:
    """A module of torch.nn.RNN, GRU, LSTM or one of their cells."""
    settings = module.settings
    hidden, directions = int(settings["hidden_size"]), 2 if settings.get("bidirectional") else 1
    layers = int(settings.get("num_layers", 1))
    state = int(settings.get("proj_size", 0)) or hidden
    sizes = next(tensors(call.arguments)).shape
    widths = (int(settings["input_size"]), *[state * directions] * (layers - 1))
    return Recurrent(
        gates=GATES[module.class_name],
        hidden=hidden,
        state=state,
        widths=widths,
        bias=bool(settings.get("bias", True)),
        directions=directions,
        rows=sizes[0] if module.class_name.endswith("Cell") else prod(sizes[:2]),
    )
