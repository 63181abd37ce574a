"""False alarms and power of the gate for pull requests (`sweep --against`, `analysis/stats/sequential.py`).

    python -m benchmarks.gate --live 20 --out results/gate     # live comparisons of equal sides; goes on where it was
    python -m benchmarks.gate --out results/gate --resample 1000
    python -m benchmarks.gate --simulate 1000

`--live N`: N comparisons of a step (`model.py`, one thread) with itself, each of --pairs pairs of fresh processes by
the quick rules, one JSON line each in OUT/comparisons.jsonl (resumed: what is there counts). What the rule says at each
of its looks follows from the values; stopping there only cuts them off. A line has the steps a block of each pair, too,
which are one number for both sides.

`--resample N`: N streams of --length values made of blocks of three neighbouring values of the recorded streams, with A
and B exchanged in half of the blocks (`streams.py`): equal sides, with the scatter, the tails and the correlation of
this machine. Planted: the same plus ln(1.03), ln(1.05), ln(1.10). Marked as resampled: they are no live comparisons.

`--simulate N`: the same of N streams of each kind of noise in `streams.py`.

A false alarm: the interval of any look does not hold 1. Shares have Wilson's 95 % interval. Not claimed: what another
machine's scatter would do.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, stdev
from typing import Any

from analysis.stats import ABOVE, BELOW, OPEN, look_sizes, sequential_ratio
from benchmarks.gate.streams import BLOCK, SCATTER, SIMULATED, Stream, exchanged, simulated
from results import json_value, read_text

FILE = "comparisons.jsonl"

_LARGEST = 1e9
"""Of any number in it, by size: logarithms of ratios, loads, seconds."""
PLANTED = (0.0, 0.03, 0.05, 0.10)
LIMIT_RATIO = 0.02
Z = 1.959963984540054

Live = Callable[[int], tuple[Stream, Sequence[int]]]
"""Number of pairs → the value and the steps a block of each."""


def main(arguments: Sequence[str] | None = None, live: Live | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--live", type=int, default=0, metavar="N", help="comparisons that there should be in the end")
    parser.add_argument("--pairs", type=int, default=9, help="of processes in each live comparison")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no live comparison after this")
    parser.add_argument("--resample", type=int, default=0, metavar="N")
    parser.add_argument("--simulate", type=int, default=0, metavar="N")
    parser.add_argument("--length", type=int, default=54, help="values of a resampled stream")
    parser.add_argument("--out", type=Path, metavar="DIR")
    options = parser.parse_args(arguments)
    for name in SIMULATED if options.simulate else ():
        print(f"simulated, {name}: {options.simulate} streams of {options.length} values, scatter {SCATTER:.0%}")
        show_equal(simulated(name, options.simulate, options.length))
    if options.out is None:
        if not options.simulate or options.live or options.resample:
            parser.error("expected --out DIR, the folder of the comparisons")
        return 0
    collect(options.out, options.live, options.pairs, 60 * options.minutes, live or live_values)
    try:
        rows = recorded(options.out)
    except ValueError as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 2
    if not rows:
        print(f"error: expected recorded comparisons in {options.out / FILE}: run --live N first", file=sys.stderr)
        return 2
    show_live(rows)
    if options.resample:
        show_resampled([row["values"] for row in rows], options.resample, options.length)
    return 0


def collect(out: Path, wanted: int, pairs: int, limit_s: float, live: Live) -> None:
    """Live comparisons until there are as many as wanted; each is kept when it has ended."""
    out.mkdir(parents=True, exist_ok=True)
    began_s = time.monotonic()
    while len(recorded(out)) < wanted and time.monotonic() - began_s < limit_s:
        start_s, load = time.monotonic(), os.getloadavg()[0]
        values, steps = live(pairs)
        row = {"values": list(values), "steps": list(steps), "load": load, "processors": os.cpu_count()}
        row["seconds"] = round(time.monotonic() - start_s, 1)
        with (out / FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{len(recorded(out))} of {wanted}: {row['seconds']} s at a load of {load:.1f}", flush=True)


def recorded(out: Path) -> list[dict[str, Any]]:
    """The comparisons that were kept; a torn line is none. Raises ValueError for a line that is no comparison."""
    path, rows = out / FILE, []
    for number, line in enumerate(read_text(path).splitlines() if path.is_file() else [], 1):
        try:
            row = json_value(line)
        except ValueError:
            continue
        if not _is_comparison(row):
            raise ValueError(f"{path}, line {number}: expected values, load, processors and seconds, got {line[:60]!r}")
        rows.append(row)
    return rows


def _is_comparison(row: Any) -> bool:
    """Whether a line has at least one value, and numbers in each of its fields; older ones have no steps."""
    if not isinstance(row, dict) or not isinstance(row.get("values"), list) or not row["values"]:
        return False
    if not isinstance(steps := row.get("steps", []), list):
        return False
    numbers = (*row["values"], *steps, *(row.get(name) for name in ("load", "processors", "seconds")))
    return all(type(number) in (int, float) and abs(number) < _LARGEST for number in numbers)


def live_values(pairs: int) -> tuple[Stream, Sequence[int]]:
    """One live comparison of a step with itself, by the rules of `sweep --against --quick`: values, steps a block."""
    from analysis.utilization import log_ratios
    from measure.timing import Protocol
    from results.records import Cell
    from runners.sweep.against.pairs import Rules, SideRun, measurement_of, time_interleaved
    from runners.workers import Worker, prepare

    os.environ["OMP_NUM_THREADS"] = "1"  # two threads on a busy machine mostly wait for each other
    prepare()
    model = "benchmarks.gate.model:build"
    cell = Cell(model=model, batch_size=64, device="cpu", precision="fp32", quick=True, inputs="256")
    protocol = Protocol.for_device("cpu", quick=True)
    sides = [SideRun(name, cell, Path.cwd(), lambda: Worker("gate")) for name in "AB"]
    never = Rules(limit_ratio=0.0, alarm_ratio=1e-300, cap_s=math.inf, timeout_s=600.0, most_pairs=pairs)
    time_interleaved(sides[0], sides[1], protocol.for_pass(), never, lambda text: None)
    blocks = [measurement_of(side, protocol).blocks for side in sides]
    starts = [index for index, block in enumerate(blocks[0]) if block.part == "measure"]
    firsts = [index for index in starts if blocks[0][index - 1].part == "warmup"]
    return log_ratios(*blocks), [blocks[0][index].steps for index in firsts]


def alarms(values: Stream) -> bool:
    """Whether any look's interval does not hold 1."""
    return any(
        found.beyond(0.0) != OPEN for size in look_sizes(len(values)) if (found := sequential_ratio(values[:size]))
    )


def decision(values: Stream, limit_ratio: float) -> tuple[str, int]:
    """What is decided about the limit, and after how many values; OPEN and all of them if nothing is."""
    for size in look_sizes(len(values)):
        found = sequential_ratio(values[:size])
        if found is not None and (said := found.beyond(limit_ratio)) != OPEN:
            return said, size
    return OPEN, len(values)


def show_live(rows: Sequence[dict[str, Any]]) -> None:
    streams = [row["values"] for row in rows]
    loads = [row["load"] for row in rows]
    pooled = [value for stream in streams for value in stream]
    scatter = stdev(pooled) if len(pooled) > 1 else 0.0
    print(
        f"live: {len(rows)} comparisons of equal sides, {len(pooled)} pairs of processes, {rows[0]['processors']} "
        f"processors at a load of {min(loads):.1f} to {max(loads):.1f}; a comparison took "
        f"{median(row['seconds'] for row in rows):.0f} s (median); values scatter by {scatter:.1%}"
    )
    print(f"  false alarms, any look's interval without 1: {share(sum(map(alarms, streams)), len(streams))}")
    said = [decision(stream, LIMIT_RATIO)[0] for stream in streams]
    rest = f"not met: {said.count(BELOW)}; undecided: {said.count(OPEN)}"
    print(f"  slower:2% met: {share(said.count(ABOVE), len(said))}; {rest}")


def show_resampled(streams: Sequence[Stream], number: int, length: int) -> None:
    print(f"resampled from these: {number} streams of {length} values in blocks of {BLOCK}, A and B exchanged in half")
    show_equal(exchanged(streams, number, length))


def show_equal(equal: Sequence[Stream]) -> None:
    """Alarms of equal sides, and what is found of planted slow-downs."""
    print(f"  equal sides, false alarms: {share(sum(map(alarms, equal)), len(equal))}")
    for planted in PLANTED:
        moved = [[value + math.log1p(planted) for value in stream] for stream in equal]
        for limit_ratio in (0.0, LIMIT_RATIO):
            said = [decision(stream, limit_ratio) for stream in moved]
            met = [size for name, size in said if name == ABOVE]
            after = f", after {median(met):.0f} pairs (median)" if met else ""
            print(f"  {planted:.0%} slower, slower:{limit_ratio:.0%} met: {share(len(met), len(equal))}{after}")


def share(count: int, of: int) -> str:
    """A count with its share and Wilson's interval."""
    if not of:
        return "0 of 0"
    p, z2 = count / of, Z * Z
    centre = (p + z2 / (2 * of)) / (1 + z2 / of)
    half = Z * math.sqrt(p * (1 - p) / of + z2 / (4 * of * of)) / (1 + z2 / of)
    return f"{count} of {of}, {p:.1%} ({max(0.0, centre - half):.1%} to {min(1.0, centre + half):.1%})"


if __name__ == "__main__":
    sys.exit(main())
