"""What `runners.ceiling` asks of its worker: a plan for a precision, and one row at a time, so that none is lost.

Each function is a task that `launch.Worker` calls by name: picklable in, picklable out. torch is imported inside them,
because the parent imports this module for its types.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from analysis.devices.precisions import PRECISIONS
from measure.ceiling.trials import ESSENTIAL, FP8, Move, Trial, moves, sweep
from results.records.samples import Ceiling

if TYPE_CHECKING:
    from analysis.parallel.link_use import CollectiveRate
    from measure.ceiling.ceilings import Bench
    from measure.parallel.fake_group import GroupMember

ANY = "fp32"
"""The flags under which copies and launches are timed; no copy depends on them."""

PROBE_S = 60.0


def plan(blank: Ceiling) -> list[Trial]:
    """Products and convolutions to try in the blank's precision, the likeliest to be best first.

    A device with fp8 units gets a product in them beside those of bf16. Both libraries have started when it returns.
    Raises Unavailable for a precision that the device lacks, ValueError where its flags do not take.
    """
    import torch

    with _bench(blank, PROBE_S) as bench:
        trials = sweep(bench.device.type, bench.probe())
        is_cuda = bench.device.type == "cuda"
        if blank.precision == "amp-bf16" and is_cuda and torch.cuda.get_device_capability(bench.device) >= (8, 9):
            trials.insert(ESSENTIAL, replace(trials[0], unit=FP8))
        return trials


def copies(device: str) -> list[Move]:
    """Copies and triads to try on this device."""
    from measure.ceiling import bandwidth
    from measure.device import environment

    memory_bytes = environment.device_facts(device).memory_bytes or 0
    return moves(device.partition(":")[0], bandwidth.last_cache_bytes(device), memory_bytes)


def views(device: str) -> tuple[str, ...]:
    """From where launches are timed on this device."""
    from measure.ceiling import launch_overhead

    return launch_overhead.operations(device)


def kernel(blank: Ceiling, trial: Trial, share_s: float) -> Ceiling:
    """The row of one product or convolution."""
    with _bench(blank, share_s) as bench:
        return bench.explained(bench.row(blank, trial, 1), trial)


def copy(blank: Ceiling, move: Move, share_s: float) -> Ceiling:
    """The row of one copy or triad."""
    from measure.ceiling import bandwidth

    with _bench(blank, share_s) as bench:
        return bandwidth.row(bench, blank, move, 1)


def launch(blank: Ceiling, view: str, share_s: float) -> Ceiling:
    """The row of launches, seen from the device or from the host."""
    from measure.ceiling import launch_overhead

    with _bench(blank, share_s) as bench:
        return launch_overhead.row(bench, blank, view, 1)


@contextlib.contextmanager
def _bench(blank: Ceiling, share_s: float) -> Iterator[Bench]:
    """A bench for the blank's device, precision and threads, until its share of time is over."""
    import torch

    from measure.ceiling.ceilings import DTYPES, Bench
    from measure.device import apply_precision
    from measure.timing.clocks import clock_for

    policy, device = PRECISIONS[blank.precision or ANY], blank.device
    apply_precision.supported(policy, device)
    if blank.threads is not None:
        torch.set_num_threads(blank.threads)
    with apply_precision.session(policy, device) as found, torch.no_grad():
        if disagreements := apply_precision.check(found, policy, device):
            raise ValueError("; ".join(disagreements))
        clock = clock_for(device)
        bench = Bench(device, DTYPES[policy.autocast], clock, 0.0)
        bench.deadline_s = clock.wall_s() + share_s  # after the device has started
        yield bench
        if bench.device.type == "cuda":
            torch.cuda.empty_cache()


def collectives(member: GroupMember, sizes: Sequence[int]) -> list[CollectiveRate]:
    """Collectives between this rank and the others (measure.parallel)."""
    import torch

    from measure.parallel.real_group import collective_rates

    if member.device.startswith("cuda"):
        torch.cuda.set_device(torch.device(member.device))
    return collective_rates(member, sizes)


def quick(device: str, precisions: tuple[str, ...], budget_s: float) -> list[Ceiling]:
    """What a profile needs, in one call (measure.ceiling.quick)."""
    from measure.ceiling.quick import measure_machine
    from measure.timing.clocks import clock_for

    return measure_machine(device, precisions, clock_for(device), budget_s)
