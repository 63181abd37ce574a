"""Steps and phases of a recording by its annotations, and where it has none of ours by what the calls themselves show.

Our own annotations win: "flopledger.forward", "flopledger.backward", … hold for every thread in their time, since
CUDA's backward pass runs on autograd's own. Without them a call in a frame of autograd is backward, one in the time of
"Optimizer.…" on its thread is optimizer, one in the data loader is of no phase, and any other is forward (a loss is
part of it). Forward that is recalculated in the backward pass is recompute, with annotations and without.

Not claimed: that an operator outside of everything is the model's: without annotations it counts as forward.

A sweep records warm-up steps, timed steps and one last step of a work in a row; the counts are of the last one
(`last_step`). Our own range "flopledger.step" is around each, on the thread that trains; before it begins the device
has been waited for, so that whatever was launched or called from its beginning on belongs to it.
"""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.trace.calls import named
from analysis.trace.operations import is_product
from measure.trace.nesting import Flags, Ints, ints, lanes, latest
from measure.trace.recording import Recording, ranges_in_order
from results.records.rows import PHASES

OWN = "flopledger."
OWN_MODULE = "flopledger.module."
FRAME = "nn.Module: "
STEP = re.compile(r"ProfilerStep#(\d{1,15})(?!\d)")
OPTIMIZER = "Optimizer."
LOADER = "enumerate(DataLoader)#"

PHASE_OF = {OWN + phase: phase for phase in PHASES}


def modules(ranges: pd.DataFrame) -> pd.DataFrame:
    """The ranges of modules with a column `module`: our own with its path, else torch's frames with their name."""
    for prefix in (OWN_MODULE, FRAME):
        own: pd.DataFrame = ranges[ranges["name"].str.startswith(prefix).astype(bool)]
        if len(own):
            return own.assign(module=own["name"].str.removeprefix(prefix))
    return ranges.iloc[:0].assign(module="")


def steps(ranges: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The ranges of training steps with a column `step`, and by which sign they are recognised. One that was recorded
    twice is one."""
    number = ranges["name"].map(lambda name: int(spans[1]) if (spans := STEP.match(name)) else -1).astype(np.int64)
    if (number >= 0).any():
        spans = ranges_in_order(ranges.assign(step=number)[number >= 0])
        return spans.drop_duplicates(["process", "step", "start_ns"], ignore_index=True), "ProfilerStep"
    own = ranges_in_order(ranges[ranges["name"] == f"{OWN}step"])
    if len(own):
        return own.assign(step=np.arange(len(own), dtype=np.int64)), "flopledger.step"
    return own.assign(step=-1), ""


def within(spans: pd.DataFrame, column: str, points: pd.DataFrame, unknown: Any) -> NDArray[Any]:
    """`column` of the latest span of the same process around each point in time; `unknown` outside of all."""
    spans = ranges_in_order(spans)
    row = latest(points, spans, ["process"])
    end = np.append(ints(spans, "start_ns") + ints(spans, "time_ns"), -1)[row]
    values = np.append(spans[column].to_numpy(object), unknown)[row]
    inside = np.where(ints(points, "start_ns") < end, values, unknown)
    return inside if isinstance(unknown, str) else inside.astype(np.int64)


def on_thread(ranges: pd.DataFrame, prefix: str, points: pd.DataFrame) -> Flags:
    """Which points in time (process, thread, start_ns) lie in a range of such a name on their own thread."""
    spans, lane = ranges_in_order(ranges[ranges["name"].str.startswith(prefix).astype(bool)]), ["process", "thread"]
    reach = (spans["start_ns"] + spans["time_ns"]).groupby([spans[name] for name in lane]).cummax()
    inside: Flags = ints(points, "start_ns") <= np.append(reach.to_numpy(np.int64), -1)[latest(points, spans, lane)]
    return inside


def phase_spans(ranges: pd.DataFrame) -> pd.DataFrame:
    """Our own ranges of phases, with a column `phase`; none: the recording is not of ours."""
    spans = ranges[ranges["name"].isin(PHASE_OF)]
    return spans.assign(phase=spans["name"].map(PHASE_OF))


def of_calls(calls: pd.DataFrame, ranges: pd.DataFrame, node: Ints, recomputed: Flags) -> NDArray[Any]:
    """The phase of every call."""
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
    """Calls on the engine's own threads: nodes run there, and nothing that made a node outside of them.

    In a recording without numbers of nodes nobody knows what made one: there a thread is the engine's own if another
    one of its process has the products outside of nodes.
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
    """What lies in the last step, as a recording that is not yet attributed. Raises ValueError if no step is marked."""
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
    """What was recorded before a last step of this number, which was cut, as a recording that is not yet attributed.
    lacks: what all steps before it have."""
    kernels = recording.kernels
    launched = kernels["launch_start_ns"].where(kernels["launch_start_ns"] >= 0, kernels["start_ns"])
    problem = f"step {step} was cut: it has no {lacks}, and is left out"
    return _cut(recording, -1, begin_ns - 1, kernels[launched < begin_ns], problems=(*recording.problems, problem))


def _cut(recording: Recording, begin: int, end: int, kernels: pd.DataFrame, **more: Any) -> Recording:
    """What lies between two times, with these kernels."""
    columns = {"calls": "start_ns", "ranges": "start_ns", "flows": "forward_ns", "lost_launches": "start_ns"}
    columns |= {"gaps": "before_ns"} if "gaps" not in more else {}
    tables = {name: getattr(recording, name) for name in columns}
    inside = {name: rows[rows[columns[name]].between(begin, end)] for name, rows in tables.items()}
    more |= {name: rows.reset_index(drop=True) for name, rows in inside.items()}
    return replace(recording, kernels=kernels.reset_index(drop=True), **more)
