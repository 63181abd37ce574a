"""PyProf's output as a `Recording`: the table of its last step (CSV), or the dicts of the one before, a kernel a line.

PyProf tells of each kernel the function that launched it, its sizes, direction and number in the autograd graph, so
nothing is left to attribute: kernels come with their call (link "sequence"), calls with phase and forward call. A call
is a run of rows that agree in number, direction, module, function and sizes. `pyprof_rows.py` reads the rows.

Times: PyProf keeps how long a kernel ran, not when. The order of rows is kept in `index`, every start is -1.

Not claimed: that PyProf's direction is right. It takes ReluBackward1 and what runs outside of any known function for
forward; calls that are backward by name, or by a thread that runs nothing but such, are backward here. Whether the
gradient of a layer's input was calculated is in no column: it is taken for calculated except for the first product of
the network, unless a kernel's name says dgrad.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from analysis.trace.calls import Missing
from analysis.trace.operations import is_product
from measure.trace.nesting import NODE
from measure.trace.pyprof_arguments import (
    LINEAR,
    Arguments,
    call_name,
    gradient_name,
    linear_of_gradient,
    of_gradient,
    of_marker,
    of_params,
)
from measure.trace.pyprof_rows import HOW_TO_MAKE, NOTHING, PyprofRow, read_rows
from measure.trace.recording import Recording, calls_table, kernels_table


@dataclass(slots=True)
class _Call:
    """The rows of one call, and what follows from them."""

    first: PyprofRow
    rows: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)  # in the autograd graph, of all rows
    kernels: list[str] = field(default_factory=list)
    phase: str = ""
    name: str = ""
    arguments: Arguments | None = None
    forward: int = -1
    step: int = -1


def read(path: str | Path) -> Recording:
    """The recording in a CSV or dict file, plain or gzip: attributed already.

    Raises ValueError, one line, for a column that is missing, a line that is cut, or a file without kernels.
    """
    rows = list(read_rows(str(path)))
    if not rows:
        raise ValueError(f"{path}: no kernels in it; {HOW_TO_MAKE}")
    calls = _calls(rows)
    try:
        steps = _resolve(calls)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{path}: the arguments of a call are not as PyProf writes them ({error})") from error
    places = {row: at for at, call in enumerate(calls) for row in call.rows}
    call_of = [places[row] for row in range(len(rows))]
    arguments = [call.arguments or Arguments(None, None, None) for call in calls]
    return Recording(
        source="pyprof",
        path=str(path),
        calls=calls_table(
            name=[call.name for call in calls],
            phase=[call.phase for call in calls],
            module=[call.first.layer for call in calls],
            step=[call.step for call in calls],
            sequence_nr=[call.numbers[-1] if call.numbers else -1 for call in calls],
            thread=[call.first.thread for call in calls],
            input_shapes=[given.shapes for given in arguments],
            input_dtypes=[given.dtypes for given in arguments],
            concrete_inputs=[given.values for given in arguments],
            forward_index=[call.forward for call in calls],
        ),
        kernels=kernels_table(
            name=[row.kernel for row in rows],
            time_ns=[row.time_ns for row in rows],
            device=[row.device for row in rows],
            stream=[row.stream for row in rows],
            launch_thread=[row.thread for row in rows],
            grid=[row.grid for row in rows],
            block=[row.block for row in rows],
            call=call_of,
            link=["sequence"] * len(rows),
            phase=[calls[at].phase for at in call_of],
            module=[calls[at].first.layer for at in call_of],
            source_flop=[row.flop for row in rows],
            params=[row.params if row.marker is None else None for row in rows],
        ),
        steps=steps,
        problems=tuple(_problems(rows, calls, steps)),
        missing=_missing(rows, calls),
        numbered=_numbered(rows),
    )


def _numbered(rows: Sequence[PyprofRow]) -> bool:
    return all(row.index > 0 for row in rows)


def _missing(rows: Sequence[PyprofRow], calls: Sequence[_Call]) -> tuple[Missing, ...]:
    """Numbered rows that are not there, of any phase: a gap does not say what was in it."""
    numbers = {row.index for row in rows}
    lost = max(numbers) - len(numbers) if _numbered(rows) else 0
    many = "1 numbered row is" if lost == 1 else f"{lost} numbered rows are"
    phases = sorted({call.phase for call in calls} & {"forward", "backward"}) if lost else ()
    return tuple(Missing(phase, lost, f"{many} not in the file, by PyProf's column Idx") for phase in phases)


# --- calls -----------------------------------------------------------------------------------------------------------


def _calls(rows: Sequence[PyprofRow]) -> list[_Call]:
    calls: list[_Call] = []
    counts_kernels = any(row.sub > 0 for row in rows)  # else Sub is 0 in every row and marks no beginning
    for at, row in enumerate(rows):
        if not at or not _same_call(calls[-1].first, rows[at - 1], row, counts_kernels):
            calls.append(_Call(row))
        call = calls[-1]
        if call.first.op == "bias" and row.op != "bias":
            call.first = row
        call.rows.append(at)
        call.kernels.append(row.kernel)
        call.numbers += [number for number in row.sequence if number not in call.numbers]
    return calls


def _same_call(first: PyprofRow, before: PyprofRow, row: PyprofRow, counts_kernels: bool) -> bool:
    """Whether a row goes on with the call of the row before it, which begins with `first`. counts_kernels: does Sub
    count the kernels of a call?"""
    if any(getattr(first, name) != getattr(row, name) for name in ("direction", "module", "family", "thread")):
        return False
    linear = row.family == "linear"
    if first.sequence != row.sequence and not (linear and {*first.numbers} & {*row.numbers}):
        return False
    if counts_kernels and row.sub == 0 and before.op == row.op and before.sequence == row.sequence:
        return False
    # of a linear layer the Params of its gradients' kernels differ, and so do those of its bias
    differ = linear and (row.direction == "bprop" or "bias" in (first.op, row.op))
    return differ or first.params == row.params


def _resolve(calls: Sequence[_Call]) -> int | None:
    """Phase, name, arguments and forward call of every call; and how many steps there are, None if nothing tells."""
    for call, phase in zip(calls, _phases(calls), strict=True):
        call.phase = phase
        if phase == "forward":
            call.name = call_name(call.first.module, call.first.op)
            call.arguments = _forward_arguments(call)
    firsts = _firsts(calls)
    forward_of = _forward_calls(calls)
    last = _gradients_of_firsts(calls, firsts)
    backward = [at for at, call in enumerate(calls) if call.phase != "forward"]
    for at in backward:
        call = calls[at]
        call.forward = forward_of.get(at, -1)
        first = call.forward in firsts if call.forward >= 0 else at in last
        _resolve_gradient(calls, call, first)
    return len(firsts) if backward and firsts else None


def _phases(calls: Sequence[_Call]) -> list[str]:
    """By name, by thread, and else as PyProf says."""
    backward = [call.first.direction == "bprop" or _backward_by_name(call.first.op) for call in calls]
    runs = {call.first.thread for call, back in zip(calls, backward, strict=True) if back}
    makes = {call.first.thread for call, back in zip(calls, backward, strict=True) if not back and _of_forward(call)}
    engine = {thread for thread in runs - makes if thread >= 0}
    is_backward = [back or call.first.thread in engine for call, back in zip(calls, backward, strict=True)]
    return ["backward" if back else "forward" for back in is_backward]


def _of_forward(call: _Call) -> bool:
    """Whether a call that is not known to be backward must be forward: it makes a node, or is a layer."""
    first = call.first
    return bool(first.sequence) or (first.has_function and is_product(call_name(first.module, first.op)))


def _backward_by_name(op: str) -> bool:
    return bool(NODE.fullmatch(op)) or (op.startswith("aten::") and "_backward" in op)


def _firsts(calls: Sequence[_Call]) -> set[int]:
    """The first product of each step: one that comes after a backward call, or before all. Numbers the steps."""
    firsts: set[int] = set()
    may_begin = True
    for at, call in enumerate(calls):
        if call.phase == "backward":
            may_begin = True
        elif may_begin and is_product(call.name):
            firsts.add(at)
            may_begin = False
        call.step = max(len(firsts) - 1, 0)
    return firsts


def _gradients_of_firsts(calls: Sequence[_Call], firsts: set[int]) -> set[int]:
    """The gradient of each step's first product, where no number tells: autograd calculates it last of all products."""
    first_of = {calls[at].step: calls[at].first for at in firsts}
    last = {
        call.step: at
        for at, call in enumerate(calls)
        if call.first.direction == "bprop" and call.first.has_function and is_product(gradient_name(call.first.op))
    }
    gradients = set()
    for step, at in last.items():
        row, first = calls[at].first, first_of.get(step)
        if first is not None and row.family == first.family and (row.family == "linear" or row.params == first.params):
            gradients.add(at)  # of a linear layer the Params of its gradients' kernels are others
    return gradients


def _forward_calls(calls: Sequence[_Call]) -> dict[int, int]:
    """Backward call → the last forward call before it that has its number; of a known function, if there is one."""
    last: dict[int, int] = {}
    forward_of = {}
    for at, call in enumerate(calls):
        if call.phase == "forward":
            for number in call.numbers:
                if number not in last or call.first.has_function or not calls[last[number]].first.has_function:
                    last[number] = at
        elif known := [last[number] for number in call.first.numbers if number in last]:
            forward_of[at] = known[0]
    return forward_of


def _forward_arguments(call: _Call) -> Arguments | None:
    if call.first.marker is not None:
        return of_marker(call.first.marker)
    return of_params(call.first.op, call.first.params)


def _resolve_gradient(calls: Sequence[_Call], call: _Call, of_first: bool) -> None:
    op, known = call.first.op, None
    if call.first.direction != "bprop":  # found by name or thread: it is what it is called
        call.name = op if _backward_by_name(op) else call_name(call.first.module, op)
        call.arguments = _forward_arguments(call)
        return
    if call.forward >= 0:
        partner = calls[call.forward]
        known = partner.arguments
        if not call.first.has_function and partner.first.has_function and not op.startswith("aten::"):
            op = partner.first.op
    if not call.first.has_function and op == call.first.op:
        call.name = f"{op}Backward" if op not in NOTHING and not _backward_by_name(op) and "::" not in op else op
        return
    call.name = gradient_name(op)
    if known is None:
        known = linear_of_gradient(call.first.params) if op in LINEAR else of_params(op, call.first.params)
    of_input = not of_first or any("dgrad" in kernel for kernel in call.kernels)
    call.arguments = of_gradient(op, known, of_input) if known is not None else None


def _problems(rows: Sequence[PyprofRow], calls: Sequence[_Call], steps: int | None) -> list[str]:
    renamed = sum(call.phase == "backward" and call.first.direction == "fprop" for call in calls)
    lacks = {
        "no sequence numbers (-c seq): calls are distinguished by size, and gradients have no forward call": not any(
            row.sequence for row in rows
        ),
        "no numbers of rows (-c idx): whether rows were taken out of the file cannot be seen": not _numbered(rows),
        "no directions (-c dir): what is not backward by name or thread counts as forward": not any(
            row.direction for row in rows
        ),
        "no times of kernels (-c sil)": not any(row.time_ns for row in rows),
        "no names of kernels (-c kernel): why a kernel was counted or not is unknown": not any(
            row.kernel for row in rows
        ),
        "no FLOPs in the file itself (-c flops)": all(row.flop is None for row in rows),
        "a step begins at the first product after a backward pass": steps is not None,
        f"{renamed} calls that PyProf took for forward are backward by name or thread": renamed > 0,
    }
    first = "PyProf keeps no start times: the order of rows stands for it"
    return [first, *(problem for problem, is_so in lacks.items() if is_so)]
