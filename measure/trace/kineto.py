"""Reads a Kineto trace (torch.profiler's JSON) as a `Recording`: NVIDIA, AMD or CPU, since torch 1.8, of any size.

`read` takes a path; `kineto_events.py` reads the events. Times become ns of the Unix clock where the trace has
`baseTimeNanoseconds`. A kernel is assigned to the host process that launched it. `_gaps` finds numbered events that are
missing in the trace. Limits: no event is numbered after the last calls of the last thread, so their loss goes
unnoticed. The loss of the first calls goes unnoticed in a trace whose events have no export number ("Ev Idx"). Two
traces may number threads differently.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.trace.calls import named
from measure.trace.json_events import HOW_TO_RECORD, MORE, events
from measure.trace.kineto_events import MALFORMED, Rows, whole_number
from measure.trace.nesting import ints
from measure.trace.recording import (
    LAUNCH_COLUMNS,
    Recording,
    calls_in_order,
    calls_table,
    device_names,
    flows_table,
    gaps_table,
    kernels_in_order,
    kernels_table,
    lacks,
    ranges_in_order,
    ranges_table,
    table,
    with_launches,
)
from results.process import collector_off
from results.text_files import counted

KERNEL_LAUNCH = re.compile(r"Launch(?!HostFunc)")
"""Part of the names of calls that launch kernels."""

BLOCK = 512
"""Length of a block of "External id" numbers (see `_gaps`). A recorder's blocks may be a multiple of it."""


def read(path: str | Path) -> Recording:
    """Return the recording in a trace file, .json or .json.gz, not yet attributed.

    Raises ValueError, one line, for a file that cannot be read to its end, for an event that is not as its recorder
    writes it, and where there are neither calls nor kernels.
    """
    rows = Rows()
    header: dict[str, Any] = {}
    event: dict[str, Any] = {}
    try:
        with collector_off():
            for event in events(path, header):
                rows.take(event)
    except RecursionError as error:
        raise ValueError(f"{path}: lists within lists, more than a recorder writes") from error
    except MALFORMED as error:
        if str(error).startswith(f"{path}: "):
            raise
        expected = "" if str(error).startswith("expected") else "a field of another type or range: "
        text = f"the event {_line(json.dumps(event))[:80]}"
        raise ValueError(f"{path}: {text} is not as its recorder writes it ({_line(expected, error)})") from error
    if not rows.calls.objects and not rows.kernels.objects:
        raise ValueError(
            f"{path}: the trace holds neither operator calls nor kernels, as where the loop ends while its schedule "
            f"waits for another cycle: give schedule() repeat=1; {HOW_TO_RECORD}"
        )
    return _recording(str(path), rows, header)


def _line(*parts: object) -> str:
    return " ".join("".join(map(str, parts)).encode("ascii", "backslashreplace").decode().split())


def _recording(path: str, rows: Rows, header: Mapping[str, Any]) -> Recording:
    base_ns = max(whole_number(header.get("baseTimeNanoseconds", 0)), 0)
    calls, ranges, launches = (part.frame(base_ns) for part in (rows.calls, rows.ranges, rows.launches))
    numbered = ["external_id", "event_index", "thread", "start_ns"]
    numbers = pd.concat([calls[numbered], ranges[numbered]], ignore_index=True)
    calls = calls_in_order(calls_table(**calls.drop(columns="event_index")))
    ranges = pd.concat([ranges.drop(columns=["external_id", "event_index"]), rows.frames.frame(base_ns)])
    kernels = rows.kernels.frame(base_ns)
    kernels, doubles = with_launches(kernels.assign(graph=False), launches)
    kernels = kernels_in_order(kernels_table(**kernels))
    ran = launches["correlation"].isin(kernels["correlation"]).to_numpy(bool)
    lost = launches[named(launches["name"], KERNEL_LAUNCH.search) & ~ran]
    sides = {
        side: pd.DataFrame.from_dict(
            rows.flows[kind],
            orient="index",
            columns=[f"{side}_process", f"{side}_thread", f"{side}_ns"],
            dtype=np.int64,
        )
        for side, kind in (("forward", "s"), ("backward", "f"))
    }
    flows = sides["forward"].join(sides["backward"], how="inner").astype(np.int64).sort_values([*sides["forward"]])
    flows[["forward_ns", "backward_ns"]] += base_ns
    listed = header.get("deviceProperties")
    devices = [entry for entry in (listed if isinstance(listed, list) else ()) if isinstance(entry, dict)]
    facts = header.get("distributedInfo")
    rank, world = (facts.get(name) if isinstance(facts, Mapping) else None for name in ("rank", "world_size"))
    ids = numbers["external_id"]
    return Recording(
        source="kineto",
        path=path,
        calls=calls,
        kernels=kernels,
        device_name=device_names(kernels, {entry.get("id"): str(entry.get("name", "")) for entry in devices}),
        problems=tuple(_problems(calls, kernels, doubles, len(lost), rows.unread, bool(header.get(MORE)))),
        ranges=ranges_in_order(ranges_table(**ranges)),
        flows=flows_table(**flows),
        lost_launches=table(LAUNCH_COLUMNS, **lost[[*LAUNCH_COLUMNS]]),
        ends=rows.ends or not rows.begins,
        gaps=_gaps(numbers),
        numbered=bool(len(ids)) and bool((ids >= 0).all()) and ids.is_unique,
        end_ns=rows.end_ns + base_ns if rows.end_ns >= 0 else -1,
        rank=rank if type(rank) is int and rank >= 0 else None,
        world_size=world if type(world) is int else None,
        host=str(header.get("host_name") or ""),
    )


def _gaps(events: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each gap in the numbers of calls and annotations; no row if a number occurs twice, since several
    recordings are in the file then.

    "External id" counts calls and annotations from 1: all of them in PyTorch 1.8 to 1.10, since then in blocks of at
    least 512 for each thread (torch/csrc/profiler/collection.h, containers.h: AppendOnlyList), the first numbers of
    which are the recorded ones. "Ev Idx" counts exported events, thread by thread. Recorders without it go on counting
    in the second recording of a process, so that the first number may be any.
    """
    known = events[events["external_id"] >= 0].sort_values("external_id", kind="stable")
    number = ints(known, "external_id")
    steps = np.diff(number)
    if not len(known) or not steps.all():
        return gaps_table()
    if (known["event_index"] < 0).all():
        number = number - number[0] + 1
    known = known.assign(number=number, block=(number - 1) // BLOCK)
    blocks: pd.DataFrame = known.groupby("block").agg(
        last=("number", "last"),
        count=("number", "size"),
        thread=("thread", "last"),
        before_ns=("start_ns", "min"),
        after_ns=("start_ns", "max"),
    )
    latest = known.groupby("thread")["block"].max()
    is_full = blocks.index.to_numpy() < latest[blocks["thread"]].to_numpy()
    blocks["count"] = np.where(is_full, BLOCK, blocks["last"] - BLOCK * blocks.index.to_numpy()) - blocks["count"]
    inside = blocks[blocks["count"] > 0]
    return pd.concat(
        [gaps_table(**inside[[*gaps_table()]]), _gaps_between_threads(events, int((steps - 1).sum()))],
        ignore_index=True,
    )


def _gaps_between_threads(events: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return the gaps between two threads in the order of export: the last calls of one or the first of the other are
    missing. No row if more than `most` numbers are missing within threads: then the recorder also numbered events that
    are not calls and not in the file."""
    known = events[events["event_index"] >= 0].sort_values("event_index", kind="stable")
    lost, changes = np.diff(known["event_index"]) - 1, np.diff(known["thread"]) != 0
    if (lost < 0).any() or lost[~changes].sum() > most:
        return gaps_table()
    wide, start_ns = changes & (lost > 0), ints(known, "start_ns")
    return gaps_table(count=lost[wide], before_ns=start_ns[:-1][wide], after_ns=start_ns[1:][wide])


def _problems(
    calls: pd.DataFrame, kernels: pd.DataFrame, doubles: int, lost: int, unread: Mapping[str, int], goes_on: bool
) -> Iterator[str]:
    if lost:
        yield f"launches of kernels of which none was recorded: {lost}; the calls that made them have no time"
    if not len(kernels):
        yield "no kernels: operator calls take their place"
    untimed = kernels["name"][kernels["untimed"] > 0].map(_line)
    if len(untimed):
        names = ", ".join(name[:40] for name in dict.fromkeys(untimed[:3]))
        yield (
            f"no usable duration: {len(untimed)} of the kernels, copies and fills ({names}); no time, rate or busy "
            "share that they touch is known"
        )
    no_values = "no concrete inputs (torch 2.0 and earlier record none)"
    no_calls = "no operator calls: record with ProfilerActivity.CPU, too"
    yield from lacks(calls, kernels, doubles, no_calls, "record_shapes=True", no_values)
    if goes_on:
        yield "the file goes on after its first document, which was the only one read"
    for category, count in unread.items():
        if count:
            yield f"not read: {counted(count, 'event')} of category {_line(category)[:40]}"
