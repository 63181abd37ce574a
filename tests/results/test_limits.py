"""Limits of what others made: their names, how they are raised, and that nothing larger is unpacked."""

from __future__ import annotations

import gc
import gzip
import io
import os
import re
from pathlib import Path

import pytest

from results.garbage_collector import MANY, collector_off
from results.limits import LIMITS, BoundedStream, limit, stated, unpack

PAGE = Path(__file__).parents[2] / "docs/limits.md"


def test_a_limit_is_the_default_or_what_the_environment_says(monkeypatch):
    assert limit("database_seconds") == LIMITS["database_seconds"].default == 600
    monkeypatch.setenv("FLOPLEDGER_LIMITS", "database_seconds=1200, unpacked_bytes=64e9")
    assert (limit("database_seconds"), limit("unpacked_bytes")) == (1200, 64_000_000_000)
    assert limit("config_layers") == LIMITS["config_layers"].default


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("database_secs=1", "nearest database_seconds"),
        ("database_seconds", "positive number for database_seconds, got ''"),
        ("database_seconds=0", "got '0'"),
        ("database_seconds=many", "got 'many'"),
        ("database_seconds=inf", "got 'inf'"),
        ("database_seconds=nan", "got 'nan'"),
    ],
)
def test_what_cannot_be_a_limit_is_refused(text, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        stated(text)


def test_the_page_has_every_limit():
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d,]+) \|", PAGE.read_text(), re.MULTILINE))
    assert rows == {name: f"{each.default:,}" for name, each in LIMITS.items()}


def test_what_is_packed_is_unpacked_to_its_limit(monkeypatch):
    content = os.urandom(1000) * 3
    packed = gzip.compress(content) + gzip.compress(b"more")
    assert unpack(packed) == content + b"more"
    monkeypatch.setenv("FLOPLEDGER_LIMITS", "memory_bytes=3004")
    assert unpack(packed) == content + b"more"
    monkeypatch.setenv("FLOPLEDGER_LIMITS", "memory_bytes=3003")
    with pytest.raises(ValueError, match="memory_bytes=N raises the limit"):
        unpack(packed)


def test_a_bomb_takes_no_memory(monkeypatch):
    import tracemalloc

    bomb = gzip.compress(bytes(200_000_000))
    monkeypatch.setenv("FLOPLEDGER_LIMITS", "memory_bytes=5e6")
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="memory_bytes"):
            unpack(bomb)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_a_stream_ends_at_its_limit(monkeypatch):
    monkeypatch.setenv("FLOPLEDGER_LIMITS", "unpacked_bytes=10")
    assert io.BufferedReader(BoundedStream(io.BytesIO(b"0123456789"), "a.gz")).read() == b"0123456789"
    with pytest.raises(ValueError, match=r"a\.gz: unpacked: more than 10"):
        io.BufferedReader(BoundedStream(io.BytesIO(b"0123456789a"), "a.gz")).read()


# The cyclic collector, which is off while a million rows are made

SAID = ("disable", "freeze", "unfreeze", "enable")


@pytest.mark.parametrize(
    ("keeps", "made", "frozen", "expected"),
    [
        (False, MANY + 1, 0, ["disable", "enable"]),
        (True, MANY + 1, 0, ["disable", "freeze", "unfreeze", "enable"]),
        (True, MANY, 0, ["disable", "enable"]),  # few
        (True, MANY + 1, 300, ["disable", "freeze", "unfreeze", "enable"]),  # those of Python 3.12 itself
        (True, MANY + 1, 1000, ["disable", "enable"]),  # what others have frozen stays so
    ],
)
def test_what_is_kept_is_old_afterwards(
    keeps: bool, made: int, frozen: int, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    for name in SAID:
        monkeypatch.setattr(gc, name, lambda name=name: said.append(name))
    monkeypatch.setattr(gc, "isenabled", lambda: True)
    monkeypatch.setattr(gc, "get_freeze_count", lambda: frozen)
    monkeypatch.setattr(gc, "get_count", lambda: (made, 0, 0))
    with collector_off(keeps=keeps):
        said.append("work")
    assert said == [expected[0], "work", *expected[1:]]
