"""Law: requirements.lock has each requirement at the version in constraints.txt, with a hash."""

import re
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements.lock"
PIN = re.compile(r"^([\w.-]+)==([\w.+-]+) \\\n    --hash=sha256:[0-9a-f]{64}$", re.MULTILINE)


def test_the_lock_has_what_is_required_at_the_versions_of_the_constraints() -> None:
    pins = dict(PIN.findall(LOCK.read_text(encoding="utf-8")))
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines), "a pin is NAME==VERSION, no hash, no address"
    constraints = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}
    for name in pins.keys() & constraints.keys():  # the lock is of one platform
        assert Version(pins[name]) == Version(constraints[name])  # 0.1.1-2209 is 0.1.1.post2209
    for file in sorted(ROOT.glob("requirements-*.txt")):
        for line in file.read_text(encoding="utf-8").splitlines():
            if line and not line.startswith(("#", "-r")):
                wanted = Requirement(line)
                name = canonicalize_name(wanted.name)
                assert name in constraints, f"{file.name}: {line}"
                assert wanted.specifier.contains(pins[name]), f"{file.name}: {line}"
