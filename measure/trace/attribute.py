"""Attributes each kernel of a recording to its call, and each call to step, phase, module and forward call.

`attribute` takes a `Recording` and returns a copy with columns filled in. Calls get `step`, `parent`, `phase`, `module`
and `forward_index`; kernels get `call`, `link`, `phase` and `module`. The function is pure and depends neither on the
recorder nor on the order of rows. A kernel belongs to the innermost call around its launch on the launching thread. A
kernel's `link` says how its call was found: "containment" (by time), "graph" (launched by a CUDA graph) or "none". In a
recording without kernels the calls take their place (`what` is "call"), each without the time of the calls inside it.
`of_calls` has the rules of phases; `steps` and `last_step` find the steps. Limits: a kernel without a recorded launch
(CUDA graphs, ROCm, a launch before the recording began) has no call. Without annotations, an operator outside of every
range counts as the model's forward pass.
"""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.trace.calls import Missing, named
from analysis.trace.operations import is_product
from measure.trace import nesting
from measure.trace.nesting import (
    FORWARD_ONLY,
    NODE,
    OPERATOR,
    CallNesting,
    Flags,
    Ints,
    forward_calls,
    ints,
    lanes,
    latest,
    makers,
    starting_at,
)
from measure.trace.recording import Recording, calls_in_order, kernels_in_order, kernels_table, ranges_in_order
from results.records.counts import PHASES

OWN = "flopledger."
OWN_MODULE = "flopledger.module."
FRAME = "nn.Module: "
STEP = re.compile(r"ProfilerStep#(\d{1,15})(?!\d)")
OPTIMIZER = "Optimizer."
LOADER = "enumerate(DataLoader)#"

PHASE_OF = {OWN + phase: phase for phase in PHASES}


def modules(ranges: pd.DataFrame) -> pd.DataFrame:
    """Return the ranges of modules with a column `module`: the path in this project's ranges, or if there are none the
    name in torch's frames."""
    for prefix in (OWN_MODULE, FRAME):
        own: pd.DataFrame = ranges[ranges["name"].str.startswith(prefix).astype(bool)]
        if len(own):
            return own.assign(module=own["name"].str.removeprefix(prefix))
    return ranges.iloc[:0].assign(module="")


def steps(ranges: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Return the ranges of training steps with a column `step`, and the name by which they are recognised ("" if there
    are none). A step that was recorded twice is one."""
    number = ranges["name"].map(lambda name: int(spans[1]) if (spans := STEP.match(name)) else -1).astype(np.int64)
    if (number >= 0).any():
        spans = ranges_in_order(ranges.assign(step=number)[number >= 0])
        return spans.drop_duplicates(["process", "step", "start_ns"], ignore_index=True), "ProfilerStep"
    own = ranges_in_order(ranges[ranges["name"] == f"{OWN}step"])
    if len(own):
        return own.assign(step=np.arange(len(own), dtype=np.int64)), "flopledger.step"
    return own.assign(step=-1), ""


def within(spans: pd.DataFrame, column: str, points: pd.DataFrame, unknown: Any) -> NDArray[Any]:
    """Return `column` of the latest span of the same process around each point in time; `unknown` outside of all."""
    spans = ranges_in_order(spans)
    row = latest(points, spans, ["process"])
    end = np.append(ints(spans, "start_ns") + ints(spans, "time_ns"), -1)[row]
    values = np.append(spans[column].to_numpy(object), unknown)[row]
    inside = np.where(ints(points, "start_ns") < end, values, unknown)
    return inside if isinstance(unknown, str) else inside.astype(np.int64)


def on_thread(ranges: pd.DataFrame, prefix: str, points: pd.DataFrame) -> Flags:
    """Return which points in time (process, thread, start_ns) lie in a range with such a name on their own thread."""
    spans, lane = ranges_in_order(ranges[ranges["name"].str.startswith(prefix).astype(bool)]), ["process", "thread"]
    reach = (spans["start_ns"] + spans["time_ns"]).groupby([spans[name] for name in lane]).cummax()
    inside: Flags = ints(points, "start_ns") <= np.append(reach.to_numpy(np.int64), -1)[latest(points, spans, lane)]
    return inside


def phase_spans(ranges: pd.DataFrame) -> pd.DataFrame:
    """Return our own ranges of phases, with a column `phase`; empty for a recording without our annotations."""
    spans = ranges[ranges["name"].isin(PHASE_OF)]
    return spans.assign(phase=spans["name"].map(PHASE_OF))


def of_calls(calls: pd.DataFrame, ranges: pd.DataFrame, node: Ints, recomputed: Flags) -> NDArray[Any]:
    """Return the phase of every call.

    Our own annotations ("flopledger.forward", …) hold for every thread in their time, because CUDA's backward pass runs
    on autograd's own thread. Without them a call in a frame of autograd is backward, one in the time of "Optimizer.…"
    on its thread is optimizer, one in the data loader has no phase, and any other is forward, the loss included. A
    forward call that is recomputed in the backward pass is recompute.
    """
    spans = phase_spans(ranges)
    if len(spans):
        phase = within(spans, "phase", calls, "")
    else:
        phase = np.full(len(calls), "forward", object)
        phase[on_thread(ranges, LOADER, calls)] = ""
        phase[on_thread(ranges, OPTIMIZER, calls)] = "optimizer"
        phase[(node >= 0) | _of_the_engine(calls, node, recomputed)] = "backward"
    phase[recomputed] = "recompute"
    return phase


def _of_the_engine(calls: pd.DataFrame, node: Ints, recomputed: Flags) -> Flags:
    """Return which calls run on the engine's own threads: threads where nodes run, and no call outside of nodes made a
    node.

    In a recording without numbers of nodes it is not known which calls made nodes. There a thread with nodes is the
    engine's own if another thread of its process has products outside of nodes.
    """
    (lane,) = lanes(calls)
    count = int(lane.max(initial=-1)) + 1
    runs_nodes = np.zeros(count, bool)
    runs_nodes[lane[node >= 0]] = True
    makes_node = (ints(calls, "sequence_nr") >= 0) & (node < 0) & ~recomputed
    runs_nodes[lane[makes_node]] = False
    if not makes_node.any():
        process = ints(calls, "process")
        outside = named(calls["name"], is_product) & (node < 0) & ~recomputed
        elsewhere = {*process[outside & ~runs_nodes[lane]].tolist()}
        runs_nodes[lane[~np.isin(process, [*elsewhere])]] = False
    return runs_nodes[lane]


OWN_STEP = f"{OWN}step"


def last_step(recording: Recording) -> Recording:
    """Return the last step as a recording that is not yet attributed. Raises ValueError if no step is marked.

    A sweep records warm-up, timed steps and one last step of a pass, each within "flopledger.step"; counts are of the
    last.
    """
    spans = recording.ranges[recording.ranges["name"] == OWN_STEP]
    if not len(spans):
        raise ValueError(f"{recording.path}: expected a range {OWN_STEP} around each step, the recording has none")
    begins = spans["start_ns"].to_numpy(np.int64)
    ends = begins + spans["time_ns"].to_numpy(np.int64)
    begin, end = int(begins.max()), int(ends[begins.argmax()])
    kernels, gaps = recording.kernels, recording.gaps
    touching = (gaps["after_ns"] >= begin) & (gaps["before_ns"] <= end)  # a part of a gap may lie in the step
    launched = kernels["launch_start_ns"]
    own = launched.between(begin, end) | ((launched < 0) & (kernels["start_ns"] >= begin))
    return _cut(recording, begin, end, kernels[own], gaps=gaps[touching].reset_index(drop=True))


def before_step(recording: Recording, step: int, begin_ns: int, lacks: str) -> Recording:
    """Return the recording before its last step, which was cut, not yet attributed. step, begin_ns: number and begin of
    the cut step. lacks: kind of calls that all other steps have."""
    kernels = recording.kernels
    launched = kernels["launch_start_ns"].where(kernels["launch_start_ns"] >= 0, kernels["start_ns"])
    problem = f"step {step} was cut: it has no {lacks}, and is left out"
    return _cut(recording, -1, begin_ns - 1, kernels[launched < begin_ns], problems=(*recording.problems, problem))


def _cut(recording: Recording, begin: int, end: int, kernels: pd.DataFrame, **more: Any) -> Recording:
    """Return the part between two times, with these kernels."""
    columns = {"calls": "start_ns", "ranges": "start_ns", "flows": "forward_ns", "lost_launches": "start_ns"}
    columns |= {"gaps": "before_ns"} if "gaps" not in more else {}
    tables = {name: getattr(recording, name) for name in columns}
    inside = {name: rows[rows[columns[name]].between(begin, end)] for name, rows in tables.items()}
    more |= {name: rows.reset_index(drop=True) for name, rows in inside.items()}
    return replace(recording, kernels=kernels.reset_index(drop=True), **more)


LAUNCHES_NOTHING = frozenset(
    f"aten::{name}"
    for name in """
    _local_scalar_dense _reshape_alias _unsafe_view alias as_strided as_strided_ chunk conj contiguous detach detach_
    empty empty_like empty_strided expand expand_as flatten is_nonzero item lift_fresh narrow permute reshape resize_
    resolve_conj resolve_neg result_type select set_ slice split squeeze squeeze_ stride t to transpose transpose_
    unbind unflatten unsqueeze unsqueeze_ view view_as
    """.split()  # noqa: SIM905
)
"""Operators that only allocate memory or make views of it, or call others that work."""


def attribute(recording: Recording) -> Recording:
    """Return the recording with every call and kernel attributed, rows in the order of start and numbered by it.

    Values that the reader filled in for kernels without a call here (PyProf's phases) stay. Attributing twice changes
    nothing.
    """
    calls, ranges = calls_in_order(recording.calls), recording.ranges
    number = ints(calls, "sequence_nr").copy()
    spans, sign = steps(ranges)
    calls["step"] = within(spans, "step", calls, -1)
    # which calls are frames of the backward pass: by name, by their forward thread, else by the recorder's flows
    is_node: Flags = named(calls["name"], NODE.fullmatch) | (ints(calls, "forward_thread") != 0)
    if not is_node.any():
        rows = starting_at(calls, recording.flows, "backward")
        is_node[rows[rows >= 0]] = True
    if (begin := _cut_step(calls, is_node, spans)) is not None:
        return attribute(before_step(recording, *begin))
    # Calls in a frame of the backward pass that recalculate the forward pass begin another graph: Kineto gives a call a
    # number only if it may make a node. Names decide, too.
    is_fresh = calls["name"].isin(FORWARD_ONLY).to_numpy(bool) | ((number >= 0) & (recording.source == "kineto"))
    nested = nesting.nest(calls, modules(ranges), is_node, is_fresh & ~is_node)
    # The order matters: a call lies in a frame of the backward pass, the frame has a maker in the forward pass, and
    # only the maker has a module, since no module's range is open on autograd's thread.
    maker_of = makers(calls, is_node, recording.flows)
    forward = forward_calls(maker_of, calls, nested, named(calls["name"], OPERATOR.fullmatch))
    _fill(calls, nested, maker_of, forward)
    calls["phase"] = of_calls(calls, ranges, nested.node, nested.recomputed)
    lost = nesting.innermost(calls, nested.parent, recording.lost_launches)
    calls["lost_kernels"] = np.bincount(lost[lost >= 0], minlength=len(calls))
    # a step is a mark with a call in it: a loop that ends while it records leaves a mark without one
    called = {*zip(ints(calls, "process").tolist(), ints(calls, "step").tolist(), strict=True)}
    marks = [*zip(ints(spans, "process").tolist(), ints(spans, "step").tolist(), strict=True)]
    count, problems = _steps(recording, sum(mark in called for mark in marks) or len(marks), sign)
    kernels = recording.kernels[recording.kernels["what"] != "call"]
    kernels = _linked(kernels, calls, ranges) if len(kernels) or not len(calls) else _call_rows(calls)
    done = bool((recording.calls["phase"] != "").any())  # then numbers are no longer those that were recorded
    missing = recording.missing if done else _missing(calls, number, recording)
    return replace(recording, calls=calls, kernels=kernels, steps=count, problems=problems, missing=missing)


WITHOUT_END = "the file has no end of its recording (Record Window End), so that its last calls are missing"


def _missing(calls: pd.DataFrame, number: Ints, recording: Recording) -> tuple[Missing, ...]:
    """Return the signs that calls are missing, once for each phase of the recording: gaps in the numbers of events; a
    file without the end that its recorder writes; arrows from forward to backward calls that begin or end at no call.
    number: of autograd's node, as recorded (-1: none). Not claimed: that a recording without a sign is complete."""
    signs, flows = [], recording.flows
    if lost := int(recording.gaps["count"].sum()):
        many = "1 numbered call is" if lost == 1 else f"{lost} numbered calls are"
        signs.append((lost, f"{many} not in the file, by its recorder's numbers"))
    if not recording.ends:
        signs.append((1, WITHOUT_END))
    for side, end in (("from", "forward"), ("to", "backward")):
        if lost := int((starting_at(calls, flows, end) < 0).sum()):
            signs.append((lost, f"{lost} of {len(flows)} arrows {side} {end} calls have none there"))
    numbered = number[(number >= 0) & ~named(calls["name"], NODE.fullmatch)]
    phases_of = {"forward", *({"backward", "recompute"} & set(calls["phase"]))}
    phases_of |= (
        {"backward"} if len(numbered) and numbered.max() > numbered.min() else set()
    )  # forward calls made nodes
    return tuple(sorted(Missing(phase, lost, reason) for phase in phases_of for lost, reason in signs))


def _fill(calls: pd.DataFrame, nested: CallNesting, maker_of: Ints, forward: Ints) -> None:
    """Fill the columns of calls that follow from nesting."""
    inside = nested.node >= 0
    node = nested.node[inside]
    forward_index, maker = np.full((2, len(calls)), -1, np.int64)
    forward_index[inside], maker[inside] = forward[node], maker_of[node]
    calls["parent"], calls["forward_index"] = nested.parent, forward_index
    calls["module"] = np.where(maker >= 0, nested.module[maker], nested.module)
    # Calls inside a backward frame have no number: they take the frame's number and forward thread, by which readers
    # find the call of the forward pass. A call with a number recalculates the forward pass and keeps its number.
    number, thread = ints(calls, "sequence_nr").copy(), ints(calls, "forward_thread").copy()
    takes = np.flatnonzero(inside)[(number[inside] < 0) & (thread[node] != 0)]
    number[takes], thread[takes] = number[nested.node[takes]], thread[nested.node[takes]]
    calls["sequence_nr"], calls["forward_thread"] = number, thread


def _cut_step(calls: pd.DataFrame, is_node: Flags, spans: pd.DataFrame) -> tuple[int, int, str] | None:
    """Return (number, begin in ns, what is missing) of a last step that was cut: all other steps have a backward pass
    or products, and it has none. None if it is not cut, or if the recording has several processes."""
    step = ints(calls, "step")
    numbers = np.unique(step[step >= 0])
    if len(numbers) < 2 or spans["process"].nunique() > 1:
        return None
    for wanted, lacks in ((is_node, "backward pass"), (named(calls["name"], is_product), "product")):
        whole = np.isin(numbers, step[wanted])
        if not whole[-1] and whole[:-1].all():
            last = int(numbers[-1])
            return last, int(spans.loc[spans["step"] == last, "start_ns"].min()), lacks
    return None


def _steps(recording: Recording, count: int, sign: str) -> tuple[int | None, tuple[str, ...]]:
    """Return the number of training steps, and the recording's problems; if no step is marked, one more says how the
    number was found."""
    if sign:
        return count, recording.problems
    if recording.steps is not None:
        return recording.steps, recording.problems
    names = recording.ranges["name"]
    optimizers = int(names.map(lambda name: str(name).startswith("Optimizer.step#")).sum())
    text = (
        f"no step is marked (ProfilerStep): {optimizers} counted by the optimizer's steps"
        if optimizers
        else "no step is marked (ProfilerStep): counted as one"
    )
    return max(optimizers, 1), (*(p for p in recording.problems if p != text), text)


def _linked(kernels: pd.DataFrame, calls: pd.DataFrame, ranges: pd.DataFrame) -> pd.DataFrame:
    """Return the kernels with their call, and its phase and module; without a call, with the phase of the annotation
    around the launch."""
    kernels = kernels_in_order(kernels)
    if not len(calls):
        return kernels
    names = {"process": "process", "launch_thread": "thread", "launch_start_ns": "start_ns"}
    launches = kernels[[*names]].rename(columns=names)
    has_launch = ints(launches, "start_ns") >= 0
    call = np.where(has_launch, nesting.innermost(calls, ints(calls, "parent"), launches), -1)
    linked = call >= 0
    link = np.where(linked, "containment", "none")
    link = np.where((kernels["link"] == "graph") & has_launch, "graph", link).astype(object)
    phase, module = (
        np.where(linked, calls[name].to_numpy(object)[call], kernels[name].to_numpy(object))
        for name in ("phase", "module")
    )
    lost, spans = has_launch & ~linked, phase_spans(ranges)
    if len(spans):
        phase[lost] = within(spans, "phase", launches, "")[lost]
    elif lost.any():
        phase[lost & on_thread(ranges, OPTIMIZER, launches)] = "optimizer"
    return kernels.assign(call=call, link=link, phase=phase, module=module)


def _call_rows(calls: pd.DataFrame) -> pd.DataFrame:
    """Return calls as rows of kernels, for a recording without kernels."""
    rows, own_ns = _working(calls)
    chosen = calls.iloc[rows]
    return kernels_table(
        name=chosen["name"].tolist(),
        what=["call"] * len(rows),
        start_ns=ints(chosen, "start_ns"),
        time_ns=own_ns,
        process=ints(chosen, "process"),
        launch_start_ns=ints(chosen, "start_ns"),
        launch_end_ns=ints(chosen, "start_ns") + ints(chosen, "time_ns"),
        launch_thread=ints(chosen, "thread"),
        call=ints(chosen, "index"),
        link=["containment"] * len(rows),
        phase=chosen["phase"].tolist(),
        module=chosen["module"].tolist(),
    )


def _working(calls: pd.DataFrame) -> tuple[Ints, Ints]:
    """Return the rows of the calls that do work themselves, and their time without that of such calls inside."""
    names = calls["name"]
    product, node = named(names, is_product).tolist(), named(names, NODE.fullmatch).tolist()
    silent = named(names, lambda name: name in LAUNCHES_NOTHING or not OPERATOR.fullmatch(name)).tolist()
    parent, time_ns = ints(calls, "parent").tolist(), ints(calls, "time_ns").tolist()
    holds_product, holds_working, inside_ns = [False] * len(calls), [False] * len(calls), [0] * len(calls)
    working, own_ns = [], []
    for row in range(len(calls) - 1, -1, -1):  # what lies inside comes later
        is_working = not (holds_product[row] if product[row] else silent[row] or node[row] or holds_working[row])
        if is_working:
            working.append(row)
            own_ns.append(max(time_ns[row] - inside_ns[row], 0))
        above = parent[row]
        if above >= 0:
            holds_product[above] = holds_product[above] or holds_product[row] or product[row]
            holds_working[above] = holds_working[above] or holds_working[row] or is_working
            inside_ns[above] += time_ns[row] if is_working else inside_ns[row]
    return np.asarray(working[::-1], np.int64), np.asarray(own_ns[::-1], np.int64)
