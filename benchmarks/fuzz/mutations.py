"""Bytes → other bytes: the edits that the fuzzer makes, most of them at one place."""

import random
import re

TOKENS = (
    b"-1", b"0", b"1e999", b"NaN", b"null", b"true", b"[]", b"{}", b'""', b"'", b'"', b",", b"\n", b"\x00", b"\xff\xfe",
    b"9" * 30, b"9" * 5000, b"-9223372036854775809", b"1e-320", b"../../etc/passwd", b"__import__('os')", b"(" * 300,
    b"[" * 3000, b"\x1b[2J", "\u202e".encode(), b"^99999", b"**99999", b"0x", b":", b"=", b"\\ud800",
)  # fmt: skip
"""What is put in: numbers beyond all types, brackets, ends, paths, code, and characters that steer a terminal."""

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")


def mutate(data: bytes, chance: random.Random, others: tuple[bytes, ...] = ()) -> bytes:
    """One to four edits. others: inputs of the same kind, pieces of which are put in."""
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        data = _edit(data, chance, others)
    return data


def _edit(data: bytes, chance: random.Random, others: tuple[bytes, ...]) -> bytes:
    if not data:
        return chance.choice(TOKENS)
    at = chance.randrange(len(data))
    to = min(len(data), at + chance.choice((1, 2, 4, 16, 64, len(data))))
    what = chance.randrange(9)
    if what == 0:
        return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
    if what == 1:
        return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
    if what == 2:
        return data[:at]
    if what == 3:
        return data[:at] + data[to:]
    if what == 4:
        return data[:to] + data[at:to] * chance.choice((1, 2, 100)) if to - at < 100 else data[:to] + data[at:]
    if what == 5 and others:
        other = chance.choice(others)
        start = chance.randrange(len(other) + 1)
        return data[:at] + other[start : start + to - at] + data[to:]
    if what == 6:
        return data[:at] + chance.choice(TOKENS) + data[at:]
    return _number(data, chance)


def _number(data: bytes, chance: random.Random) -> bytes:
    """Another number, or something else, where a number stands."""
    found = list(_NUMBER.finditer(data[: 1 << 20]))
    if not found:
        return data + chance.choice(TOKENS)
    match = chance.choice(found)
    return data[: match.start()] + chance.choice((*TOKENS[:12], b"7", b"-4", b"2.5")) + data[match.end() :]
