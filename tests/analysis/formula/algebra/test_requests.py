"""Requests as text: sides, units and candidates by hand; each bad one a line with the nearest valid name."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

from analysis.formula.algebra.constraints import UNITS, Candidates, amount, request
from analysis.formula.algebra.expressions import parse, plain, rational, symbol

QUANTITIES = {
    "footprint": parse("16*hidden^2 + 4*batch*hidden"),
    "time": parse("batch*hidden/1000"),
    "intensity": parse("batch/2"),
    "parameters": parse("4*hidden^2"),
    "ridge": rational(17),
}
MEASURES = {"footprint": "B", "time": "s", "intensity": "FLOP/B", "parameters": ""}


@pytest.mark.parametrize(
    ("text", "left", "relation", "right", "unknown", "candidates"),
    [
        ("footprint <= 32 GiB for batch", "footprint", "<=", 32 * 2**30, "batch", Candidates()),
        ("footprint<=1.5e3kB for batch", "footprint", "<=", 1_500_000, "batch", Candidates()),
        ("time < 0.5 s for hidden", "time", "<", Fraction(1, 2), "hidden", Candidates()),
        ("time ≤ 20 ms for batch multiple of 8", "time", "<=", Fraction(1, 50), "batch", Candidates(8, 8)),
        ("intensity >= ridge for batch = 1 mod 8", "intensity", ">=", 17, "batch", Candidates(1, 8)),
        ("intensity ≥ 20 FLOP/B for batch ≡ 16 mod 8", "intensity", ">=", 20, "batch", Candidates(8, 8)),
        ("parameters > 7 G for hidden in 64:4100:64", "parameters", ">", 7 * 10**9, "hidden", Candidates(64, 64, 4096)),
        ("parameters = 1_024 for hidden in 1:9", "parameters", "==", 1024, "hidden", Candidates(1, 1, 9)),
        ("parameters == 1e6 for hidden in 4:4", "parameters", "==", 10**6, "hidden", Candidates(4, 1, 4)),
        ("2 * footprint + 1 KiB <= 3 * 1 MiB for batch", "2*footprint + 1024", "<=", 3 * 2**20, "batch", Candidates()),
        ("4*hidden^2 <= 10 for hidden", "4*hidden^2", "<=", 10, "hidden", Candidates()),
    ],
)
def test_requests_by_hand(
    text: str, left: str, relation: str, right: Fraction, unknown: str, candidates: Candidates
) -> None:
    found = request(text, QUANTITIES, measures=MEASURES)
    assert plain(found.left) == plain(parse(left, {**QUANTITIES, "hidden": symbol("hidden")}))
    assert (found.relation, found.right, found.unknown) == (relation, rational(right), unknown)
    assert found.candidates == candidates
    assert found.measure == MEASURES.get(left, "")
    assert request(text, QUANTITIES).measure == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("footprint", "expected QUANTITY <= NUMBER UNIT for SYMBOL"),
        ("footprint <= 5", "expected QUANTITY <= NUMBER UNIT for SYMBOL"),
        ("footprint => 5 for batch", "expected QUANTITY <= NUMBER UNIT for SYMBOL"),
        ("1 <= footprint <= 5 for batch", "expected QUANTITY <= NUMBER UNIT for SYMBOL"),
        ("footprnt <= 5 GiB for batch", "got 'footprnt', nearest footprint"),
        ("footprint <= 5 GIB for batch", "got 'GIB', nearest GiB"),
        ("footprint <= 5 Gib for batch", "nearest GiB"),
        ("footprint <= 5 GiB for bach", "unknown symbol: expected batch or hidden, got 'bach', nearest batch"),
        (
            "footprint <= 5 ms for batch",
            "expected footprint in B, kB, MB, GB, TB, PB, EB, KiB, MiB, GiB, TiB, PiB, got 'ms'",
        ),
        ("5 ms >= footprint for batch", "expected footprint in B"),
        ("parameters <= 5 GiB for batch", "expected parameters in k, M, G, T, P, E, got 'GiB'"),
        ("footprint <= five for batch", "unknown name"),
        ("footprint <= 5 GiB for batch multiple of 0", "expected a step of at least 1"),
        ("footprint <= 5 GiB for batch = 1 mod 0", "expected a step of at least 1"),
        ("footprint <= 5 GiB for batch even", "expected multiple of M, = R mod M, in FIRST:LAST[:STEP] or nothing"),
        ("footprint <= 5 GiB for batch in 9:1", "with FIRST ≤ LAST"),
        ("footprint <= 5 GiB for 3", "unknown symbol"),
        ("footprint <= 5 GiB for  !", "expected a symbol after for, got '!'"),
    ],
)
def test_bad_requests_get_one_line(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as fault:
        request(text, QUANTITIES, measures=MEASURES)
    assert "\n" not in str(fault.value)


def test_units_by_hand() -> None:
    """kB is 1,000 and KiB 1,024 bytes; a bare prefix is a number."""
    expected = {
        "KiB": 1024,
        "TiB": 2**40,
        "kB": 1000,
        "TB": 10**12,
        "GFLOP": 10**9,
        "us": Fraction(1, 10**6),
        "M": 10**6,
        "ns": Fraction(1, 10**9),
        "µs": Fraction(1, 10**6),
        "ms": Fraction(1, 10**3),
        "PiB": 2**50,
        "EFLOP": 10**18,
    }
    assert {unit: UNITS[unit][1] for unit in expected} == expected
    assert UNITS["TFLOP/s"] == ("FLOP/s", 10**12)
    assert UNITS["GiB/s"] == ("B/s", 2**30)


@pytest.mark.parametrize(
    ("number", "measure", "text"),
    [
        (43_057_000_000, "B", "40.1 GiB"),
        (1023, "B", "1,023 B"),
        (Fraction(1, 40), "s", "25 ms"),
        (Fraction(5, 2), "s", "2.5 s"),
        (1_500_000_000, "FLOP", "1.5 GFLOP"),
        (1_500_000, "", "1,500,000"),
        (Fraction(35, 2), "FLOP/B", "17.5 FLOP/B"),
        (Fraction(1, 3), "", "0.333333"),
        (-(2**31), "B", "-2 GiB"),
        (10**30, "", "1e+30"),
    ],
)
def test_amounts(number: Fraction, measure: str, text: str) -> None:
    assert amount(number, measure) == text
