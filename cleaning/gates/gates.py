"""Judges whether a run may be published: each gate checks one way in which a number can be wrong, and names the cells.

`judge` takes the run's `Evidence` and returns a verdict per gate, in the order of `GATES`. A gate does not see cells
that failed a gate it depends on (`after`), so that one fault fails one gate. A gate without anything to check is open,
never passed. For example, a CPU has no clock telemetry, and a run of one batch size has no law in the batch. Gates of
the run as a whole are here, the others in `counts.py`, `device.py` and `times.py`. CONTRIBUTING.md says how to add a
gate. A run that passes all gates can still have wrong numbers.
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace

from analysis.devices.peaks import is_stand_in
from cleaning.gates import counts, device, times
from cleaning.gates.evidence import (
    FAULTS,
    RUN,
    SELF_TEST_FILE,
    Evidence,
    Finding,
    Gate,
    finding,
    self_test_faults,
)
from results.records.answers import FAIL, OPEN, PASS, Verdict
from results.store.manifest import DIRTY, differing


def committed(evidence: Evidence) -> Iterator[Finding]:
    """Find rows that the reader left out, could not match with a checksum, or could not read as values of their
    columns."""
    data = evidence.data
    ids = {run.cell_id for run in data.all_runs}
    for problem in data.problems:
        named = next((cell_id for cell_id in sorted(ids) if cell_id in problem), RUN)
        yield Finding(named, False, problem)
    for run in evidence.measured_cells:
        yield Finding(run.cell_id, True)
    for trace_id, facts in evidence.facts.items():
        for run in (run for run in data.runs if run.trace_id == trace_id and facts.fault):
            yield Finding(run.cell_id, False, facts.fault)


def one_machine(evidence: Evidence) -> Iterator[Finding]:
    """Find sessions that could not have been collected into one run, and code that no known commit holds."""
    for first, second in itertools.pairwise(evidence.used_sessions):
        text = ", ".join(f"{name} ({a!r}, {b!r})" for name, a, b in differing(first, second))
        yield finding(RUN, not text, f"{first.session} and {second.session} differ in {text}")
    for session in evidence.used_sessions:
        version = str(session.environment.get("harness_version") or evidence.data.manifest.harness_version or "")
        known = "+g" in version or not session.device.startswith("cuda")
        text = f"{session.session} was measured by {version or 'unknown code'}"
        yield Finding(RUN, known and not version.endswith(DIRTY), text if known else f"{text}, of no known commit")


def hardware(evidence: Evidence) -> Iterator[Finding]:
    """Check that no session's device is a stand-in, by its name, its environment or its ceilings' device."""
    for session in evidence.data.sessions:
        names = {session.device_name, str(session.environment.get("name") or "")}
        names |= {row.device_name for row in evidence.data.ceilings if row.session == session.session}
        marked = sorted(filter(is_stand_in, names)) or (["stand_in"] if session.environment.get("stand_in") else [])
        text = f"{session.session}: measured on a stand-in, which is no hardware ({', '.join(marked)})"
        yield finding(RUN, not marked, text)


def self_test(evidence: Evidence) -> Iterator[Finding]:
    """Check the run's self-test: passed, with every check that a GPU can answer, on this device and software."""
    homes = [session for session in evidence.used_sessions if session.device.startswith("cuda")]
    test = evidence.self_test
    if not homes or test is None:
        return
    if isinstance(test, str):
        faults = [test]
    else:
        own = {
            "device": test.device,
            "driver": test.driver,
            "torch": test.torch_version,
            "harness_version": test.harness_version,
        }
        runs = [
            (session.device_name, session.driver, session.torch_version, session.environment.get("harness_version"))
            for session in homes
        ]
        pairs = zip(own.items(), zip(*runs, strict=True), strict=True)
        elsewhere = [f"{name} is {text!r}, in the run {of[0]!r}" for (name, text), of in pairs if text not in of]
        faults = [*self_test_faults(test), *elsewhere]
    yield finding(RUN, not faults, f"{SELF_TEST_FILE}: {'; '.join(faults)}")


GATES: tuple[Gate, ...] = (
    Gate(
        "committed",
        "every row is committed, is what was committed, and holds values that its columns can hold",
        committed,
        "a measured cell",
    ),
    Gate(
        "one_machine",
        "sessions agree in device, driver branch, torch and peaks, and were measured by committed code; on a GPU, by a "
        "known commit",
        one_machine,
        "a session",
    ),
    Gate(
        "hardware",
        "no session was on a stand-in device, which computes nothing",
        hardware,
        "a session",
    ),
    Gate(
        "self_test",
        "the run's self-test passed, on its device and by its driver, torch and code",
        self_test,
        "self_test.json: python -m runners.doctor --self-test --write DIR",
        on=("cuda",),
    ),
    *counts.GATES,
    *times.GATES,
    *device.GATES,
)


def judge(evidence: Evidence, gates: Iterable[Gate] = GATES) -> list[Verdict]:
    """Return one verdict per gate, in order."""
    kind = "cuda" if any(session.device.startswith("cuda") for session in evidence.data.sessions) else "cpu"
    failed: dict[str, set[str]] = {}
    verdicts = []
    for gate in gates:
        out = set[str]().union(*(failed.get(name, set()) for name in gate.after))
        try:
            findings = list(gate.check(evidence.without(out)))
        except FAULTS as fault:  # of rows that the gate stumbles over
            findings = [Finding(RUN, False, f"cannot be checked: {type(fault).__name__}: {fault}")]
        verdict = replace(_verdict(gate, findings, len(out)), needed=kind in gate.on)
        failed[gate.name] = set(verdict.cell_ids) if verdict.verdict == FAIL else set()
        verdicts.append(verdict)
    return verdicts


def _verdict(gate: Gate, findings: list[Finding], left_out: int) -> Verdict:
    wrong = [finding for finding in findings if not finding.holds]
    cells = dict.fromkeys(finding.cell_id for finding in wrong or findings if finding.cell_id != RUN)
    by_cell: dict[str, list[str]] = {}
    for shown in (shown for shown in wrong or findings if shown.text):
        by_cell.setdefault(shown.cell_id, []).append(shown.text)
    missing = "" if findings else f"needs {gate.needs}"
    skipped = f"not checked: {left_out} of the cells, which failed an earlier gate" if left_out else ""
    return Verdict(
        gate=gate.name,
        checks=gate.checks,
        verdict=FAIL if wrong else PASS if findings else OPEN,
        asked=len({finding.cell_id for finding in findings}),
        cell_ids=tuple(cells),
        found={cell_id: "; ".join(dict.fromkeys(texts)) for cell_id, texts in by_cell.items()},
        reason="; ".join(filter(None, (missing, skipped))),
    )
