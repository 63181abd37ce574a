"""The tests marked `gpu` on a stand-in device, as a program: `python -m tests.standin.run [pytest's arguments]`.

They are for real devices and run here so that their code, and the code that they test, has been run at all. No single
plan suits all of them: one test wants a device that waits for its host, another one whose every kernel takes time. So
each plan runs those that have not passed yet. Prints one line a test that passed under none, and a summary as a row of
docs/evidence.md. Takes some twenty minutes on two cores.
"""

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.standin.device.stand_in import ROOT, StandIn, build

PLANS: tuple[dict[str, float | str], ...] = (
    {"kernel_ns": 20_000},
    {"kernel_ns": 1_000, "efficiency": 0.05, "elementwise_gbps": 2_000},
    {"kernel_ns": 200_000},
)
"""Every kernel alike; products at a twentieth of their peak and all else shorter than a call; long kernels alike."""


def outcomes(report: Path) -> dict[str, str]:
    """pytest's name of a test → passed, failed or skipped."""
    found = {}
    for case in ET.parse(report).iter("testcase"):
        path = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        words = {child.tag for child in case}
        found[path] = "failed" if words & {"failure", "error"} else "skipped" if "skipped" in words else "passed"
    return found


def main() -> int:
    """0 if every test passed or was skipped under one of the plans."""
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        libraries = build(Path(folder) / "libraries")
        for number, plan in enumerate(PLANS):
            device = StandIn(libraries, Path(folder) / f"device{number}", plan)
            report = device.folder / "junit.xml"
            tests = [name for name, outcome in found.items() if outcome == "failed"] or sys.argv[1:]
            words = (sys.executable, "-m", "pytest", "-m", "gpu", "-n", "0", "-q", f"--junitxml={report}", *tests)
            subprocess.run(words, cwd=ROOT, env=device.environment(), check=False)
            found |= outcomes(report)
            for name in device.missing():
                print(f"not in the stand-in: {name}")
    for name, outcome in sorted(found.items()):
        if outcome != "passed":
            print(f"{outcome}: {name}")
    counts = [list(found.values()).count(outcome) for outcome in ("passed", "failed", "skipped")]
    print(f"| {len(found)} | {' | '.join(map(str, counts))} |")
    return 1 if counts[1] else 0


if __name__ == "__main__":
    sys.exit(main())
