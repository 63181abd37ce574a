"""What the doctor says of a CPU: its cores, what they may be used for, and its derived peak, measured.

`peaks_answer` is the same for `--peaks`: of this machine's processor ("cpu"), or what a core of a microarchitecture
does in a clock, which is no peak before cores and a clock are known.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.devices import processors
from analysis.devices.processors import Processor, vector_units
from measure.ceiling.core_peaks import KERNEL_UNITS, issue_rows
from measure.device.cpu_identity import Allowance, allowance, processor
from reports.shared.numbers import si
from results.errors import Unavailable
from results.records.samples import Ceiling
from runners.doctor.checks import Check

ISSUE_S = 0.1
"""Seconds of each kernel."""


def processor_checks(threads: int) -> list[Check]:
    """Lines of this machine's processor, measured within seconds. threads: torch's."""
    try:
        found = processor()
    except Unavailable as fault:
        return [Check("processor", "missing", str(fault), "no derived peak: the measured peak alone")]
    identity = identity_check(found, allowance(), threads)
    return [identity, *peak_checks(core_rows(threads, fastest=True)), *product_checks()]


def core_rows(threads: int, fastest: bool = False) -> list[Ceiling]:
    """What this machine's cores do in each unit. fastest: with its fastest instructions alone."""
    return issue_rows(_blank(), KERNEL_UNITS, threads, ISSUE_S, fastest)


def identity_check(processor: Processor, allowed: Allowance, threads: int) -> Check:
    """Which microarchitecture it is, and what of it this process may use."""
    what = f"family {processor.family} model {processor.model} stepping {processor.stepping or '?'}"
    usable = f"{allowed.usable_cores(threads):g} of {len(allowed.cores)} cores with {threads} threads of torch"
    parts = [
        what,
        f"{usable}, {len(allowed.processors)} processors in its affinity",
        f"{allowed.hardware_threads} hardware thread{'s' * (allowed.hardware_threads > 1)} a core",
        f"{allowed.numa_nodes} NUMA node{'s' * (allowed.numa_nodes > 1)}",
        "no quota" if allowed.quota is None else f"a quota of {allowed.quota:g} processors",
    ]
    try:
        name = processors.identify(processor).name
    except Unavailable as fault:
        return Check("processor", "warn", "; ".join(parts), str(fault))
    return Check("processor", "ok", "; ".join([name, *parts]))


def peak_checks(rows: Sequence[Ceiling]) -> Iterator[Check]:
    """One line a unit: its peak and what the kernel reached of it, or why there is none."""
    for row in rows:
        text = row.reason.removeprefix("note: ")
        if row.derived_flop_per_s is None:
            measured = f"; its kernel reached {si(row.flop_per_s, 'FLOP/s')}" if row.flop_per_s else ""
            yield Check("derived peak", "warn", f"{row.unit}: none{measured}", text or row.status)
            continue
        reached = (row.flop_per_s or 0.0) / row.derived_flop_per_s
        fact = (
            f"{row.unit} {si(row.derived_flop_per_s, 'FLOP/s')}: {row.cores:g} cores, {row.instructions} at "
            f"{(row.sm_clock_hz or 0.0) / 1e9:.2f} GHz; {row.per_clock:.4g} a clock counted, {reached:.0%} reached"
        )
        yield Check("derived peak", "warn" if text else "ok", fact, text)


def product_checks() -> list[Check]:
    """A line a dtype: what this torch's libraries run a matrix product and a convolution with, as they say themselves.

    A dtype that the processor has no instructions for is converted around float32, and is slower than that.
    """
    from measure.device import product_instructions

    checks, emulated = [], product_instructions.EMULATED
    for dtype, run in product_instructions.PRODUCTS.items():
        with product_instructions.log() as log:
            lost = product_instructions.attempt(run)
        named = {kind.partition("/")[0]: names for kind, names in log.instructions.items()}
        fact = ", ".join(f"{kind} {_by(named.get(kind, (NOT_SAID,)), emulated)}" for kind in PRODUCT_KINDS)
        slow = emulated in {name for names in named.values() for name in names}
        note = "converted around float32: no faster than that" if slow else ""
        checks.append(Check("products", "warn" if slow else "ok", f"{dtype}: {fact}", lost or log.reason or note))
    return checks


PRODUCT_KINDS = ("matmul", "convolution")

NOT_SAID = "a library that does not say"


def _by(names: Sequence[str], emulated: str) -> str:
    return emulated if emulated in names else f"by {' and '.join(names)}"


def peaks_answer(name: str, threads: int) -> dict[str, Any]:
    """The JSON document of `--peaks` of a CPU. Raises Unavailable where this machine's processor is not known."""
    rows = core_rows(threads) if name.casefold() == processors.HERE else []
    microarchitecture = (
        processors.identify(processor()).name
        if rows
        else next((each for each in processors.names() if each.casefold() == name.casefold()), None)
    )
    measured = {(row.unit, row.instructions): row for row in rows}
    return {
        "device": microarchitecture,
        "units": [
            {
                "unit": unit.unit,
                "instructions": unit.instructions,
                "per_clock": str(unit.per_clock),
                "flop_per_clock": float(unit.flop_per_clock),
                **_measured_columns(measured.get((unit.unit, unit.instructions))),
                "source": unit.source,
                "evidence": unit.evidence,
            }
            for unit in vector_units(str(microarchitecture))
        ],
    }


def _measured_columns(row: Ceiling | None) -> Mapping[str, Any]:
    columns = ("cores", "sm_clock_hz", "derived_flop_per_s", "flop_per_s", "reason")
    return {name: None if row is None else getattr(row, name) for name in columns}


def _blank() -> Ceiling:

    return Ceiling(sitting="", device=processors.HERE, precision="", unit="", operation="", shape="")
