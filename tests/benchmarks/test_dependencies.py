"""requirements.lock: the constraints' versions, all with hashes, and the page that lists the same packages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from benchmarks.pages.dependencies import LOCK, PAGE, UNDECLARED, lock, page, resolved

ROOT = Path(__file__).parents[2]
DIGEST = "0123456789abcdef" * 4
PIN = re.compile(r"^([\w.-]+)==([\w.+-]+) \\\n    --hash=sha256:[0-9a-f]{64}$", re.MULTILINE)


def entry(name: str, **fields: Any) -> dict[str, Any]:
    archive = {"archive_info": {"hashes": {"sha256": DIGEST}}}
    return {"metadata": {"name": name, "version": "1.5", **fields}, "download_info": archive}


def test_each_line_of_the_lock_has_a_version_and_a_hash() -> None:
    text = LOCK.read_text(encoding="utf-8")
    first, _, rest = text.partition("\n")
    assert first.startswith("# Python 3.11, Linux, x86_64")
    assert PIN.sub("", rest).strip() == ""
    assert len(PIN.findall(rest)) > 100


def test_the_lock_has_what_is_required_at_the_versions_of_the_constraints() -> None:
    pins = dict(PIN.findall(LOCK.read_text(encoding="utf-8")))
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        name, _, version = line.partition("==")
        if version and canonicalize_name(name) in pins:  # the lock is of one platform
            assert Version(pins[canonicalize_name(name)]) == Version(version)  # 0.1.1-2209 is 0.1.1.post2209
    for file in sorted(ROOT.glob("requirements-*.txt")):
        for line in file.read_text(encoding="utf-8").splitlines():
            if line and not line.startswith(("#", "-r")):
                wanted = Requirement(line)
                assert wanted.specifier.contains(pins[canonicalize_name(wanted.name)]), f"{file.name}: {line}"


def test_the_page_lists_the_packages_of_the_lock() -> None:
    pins = dict(PIN.findall(LOCK.read_text(encoding="utf-8")))
    rows = re.findall(r"^\| ([a-z0-9][a-z0-9-]*) \| ([^ |]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert dict(rows) | {"package": "version"} == pins | {"package": "version"}


def test_a_licence_is_the_first_that_is_declared() -> None:
    text = "Copyright of somebody\n\nPermission is hereby granted"
    classifier = ["License :: OSI Approved :: MIT License", "Topic :: Software"]
    report = {
        "install": [
            entry("not-installed-a", license="Apache-2.0", classifier=classifier),
            entry("not-installed-b", license=text, classifier=classifier),
            entry("not-installed-c", license="UNKNOWN"),
            entry("pytest"),
        ]
    }
    licences = {each.name: each.licence for each in resolved(report)}
    assert licences.pop("pytest") == "MIT"
    assert licences == {
        "not-installed-a": "Apache-2.0",
        "not-installed-b": "MIT License",
        "not-installed-c": UNDECLARED,
    }
    assert "1 declare no licence: not-installed-c." in page(resolved(report), "here")
    assert lock(resolved(report), "here").count(f"==1.5 \\\n    --hash=sha256:{DIGEST}\n") == 4


def test_a_package_without_a_hash_is_refused() -> None:
    spoilt = entry("somewhere")
    spoilt["download_info"] = {"vcs_info": {}}
    with pytest.raises(ValueError, match=r"somewhere 1\.5 has no sha256"):
        resolved({"install": [spoilt]})
