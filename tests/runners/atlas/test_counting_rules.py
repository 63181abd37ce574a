"""Kept counts of the atlas are of today's rules: which code a count runs, what its digest sees, what is believed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from runners.atlas import costs, counting_rules
from runners.atlas.costs import CostKey, count_all, read_cost, read_operations
from runners.atlas.counting_rules import modules, parsed, rules_digest

timm = pytest.importorskip("timm", reason="timm is not installed")

KEY = CostKey("timm:resnet18", 64, "train")

DECIDING_NOTHING = (
    "tests",
    "analysis/stats",
    "analysis/utilization",
    "measure/__init__.py",
    "results",
    "runners",
    "workloads",
)
"""Where code is that a count passes through: doors that hand names on, limits, plain words, pauses of the collector."""


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """A folder with one cost, and the files of this project whose functions ran in counting it."""
    folder, files = tmp_path_factory.mktemp("costs"), set()

    def watch(frame, event, _argument):
        if event == "call" and frame.f_code.co_name not in ("<module>", "__getattr__"):
            files.add(frame.f_code.co_filename)

    sys.setprofile(watch)
    try:
        assert list(count_all([KEY], folder, 0)) == [(1, 1)]
    finally:
        sys.setprofile(None)
    root = str(counting_rules.ROOT)
    return folder, {Path(file) for file in files if file.startswith(root)}


def test_a_cost_of_other_rules_is_not_believed_and_is_counted_again(counted, monkeypatch):
    folder, _ = counted
    before = read_cost(KEY, folder)
    assert before.cost.low.model_flop > 0
    assert list(count_all([KEY], folder, 0)) == []
    with monkeypatch.context() as patch:
        patch.setattr(costs, "rules_digest", lambda: "other rules")
        assert read_cost(KEY, folder) is None
        assert read_operations(KEY, folder) is None
        assert list(count_all([KEY], folder, 0)) == [(1, 1)]
        assert read_cost(KEY, folder).cost.low.model_flop == before.cost.low.model_flop
    assert read_cost(KEY, folder) is None
    assert list(count_all([KEY], folder, 0)) == [(1, 1)]


def test_a_cost_that_names_no_rules_is_not_believed(counted):
    """As files were that older versions wrote."""
    folder, _ = counted
    path = folder / KEY.file
    before = path.read_bytes()
    with np.load(path) as arrays:
        plain = dict(arrays)
    head = str(plain["head"])
    np.savez_compressed(path, **plain | {"head": np.array(head.replace('"rules"', '"rule"'))})
    assert read_cost(KEY, folder) is None
    assert read_operations(KEY, folder) is None
    path.write_bytes(before)
    assert read_cost(KEY, folder) is not None


def test_what_decides_a_count_is_in_the_digest(counted):
    """By an independent route: the interpreter says which files' functions ran."""
    _, files = counted
    outside = {path.relative_to(counting_rules.ROOT).as_posix() for path in files - set(modules())}
    assert {name for name in outside if not name.startswith(DECIDING_NOTHING)} == set()
    assert {name for name in outside if name.startswith("workloads/")} <= {"workloads/__init__.py"}
    assert {name for name in outside if name.startswith("runners/")} <= {"runners/atlas/counting_rules.py"}
    ran = {path.relative_to(counting_rules.ROOT).as_posix() for path in files}
    assert {"analysis/operators/products.py", "analysis/profile/fusion.py", "measure/operations/tracer.py"} <= ran


def test_every_module_that_is_named_is_there():
    for place in counting_rules.DECIDING:
        assert list(modules([place])), place
        assert all(path.is_file() for path in modules([place])), place


@pytest.mark.parametrize(
    ("source", "is_same"),
    [
        ('"""Another text."""\n\ndef flop(n):\n    """Words."""\n    # why\n    return (2\n            * n)\n', True),
        ("def flop(n):\n    return 3 * n\n", False),
        ("def flop(n, m=1):\n    return 2 * n\n", False),
        ("def flop(n):\n    return 2 * n\n\nTABLE = {'aten.mm': 2}\n", False),
    ],
)
def test_the_digest_is_of_what_the_source_does(source, is_same, tmp_path, monkeypatch):
    before = '"""A text."""\n\ndef flop(n):\n    return 2 * n\n'
    assert (parsed(source) == parsed(before)) == is_same
    monkeypatch.setattr(counting_rules, "ROOT", tmp_path)
    monkeypatch.setattr(counting_rules, "DECIDING", ("rules.py",))
    monkeypatch.setattr(counting_rules.modules, "__defaults__", (("rules.py",),))
    found = []
    for text in (before, source):
        (tmp_path / "rules.py").write_text(text)
        found.append(rules_digest.__wrapped__())
    assert (found[0] == found[1]) == is_same


def test_the_digest_has_the_versions_of_libraries(monkeypatch):
    before = rules_digest.__wrapped__()
    monkeypatch.setattr(counting_rules, "_version", lambda name: "0.0" if name == "timm" else "1.0")
    assert rules_digest.__wrapped__() != before
