"""Definition, injected fault: answers against trying every number and by hand; no solution in one line."""

import itertools
import re
from fractions import Fraction
from typing import Any

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.formula.expressions import parse, plain, symbol, value
from analysis.formula.requests import Candidates, Rates, rates, request, time_bound
from analysis.formula.solve import HOLDS, Intervals, NoSolution, Solution, crossing, direction, intervals_where, solve
from tests.support.made_up_operations.formulas_made_up import SYMBOLS, formulas

B, H, S = SYMBOLS
N = 300
"""How far the brute force looks."""

relations = st.sampled_from(["<=", "<", ">=", ">", "=="])
candidates = st.builds(
    Candidates, st.integers(1, 20), st.integers(1, 9), st.none() | st.integers(0, 300).map(lambda more: 20 + more)
)


def asked(text: str, fixed: dict[str, int] | None = None, **quantities: Any) -> Solution:
    return solve(request(text, {name: sympy.sympify(formula) for name, formula in quantities.items()}), fixed or {})


def tried(formula: Any, relation: str, which: Candidates) -> list[int]:
    last = N if which.last is None else min(N, which.last)
    numbers = range(which.first, last + 1, which.step)
    return [n for n in numbers if HOLDS[relation](value(formula, {"hidden": n}, ["hidden"]), 0)]


def claimed(found: Intervals, which: Candidates) -> list[int]:
    last = N if which.last is None else min(N, which.last)
    spans = (range(low, (last if high is None else min(high, last)) + 1, which.step) for low, high in found.intervals)
    return list(itertools.chain.from_iterable(spans))


def in_hidden(formula: Any, batch: int, seq: int) -> Any:
    return formula.subs({B: batch, S: seq})


small = st.integers(1, 40)


@settings(deadline=None, max_examples=60)
@given(formulas(), small, small, st.integers(1, N), relations, candidates)
def test_runs_of_any_formula_are_all_that_trying_finds(
    formula: Any, batch: int, seq: int, at: int, relation: str, which: Candidates
) -> None:
    only = in_hidden(formula, batch, seq)
    only -= value(only, {"hidden": at}, ["hidden"])
    which = Candidates(which.first, which.step, which.last or N)
    found = intervals_where(only, relation, H, which)
    assert claimed(found, which) == tried(only, relation, which)


@settings(deadline=None, max_examples=100)
@given(formulas(), small, small)
def test_a_direction_is_never_wrong(formula: Any, batch: int, seq: int) -> None:
    only = in_hidden(formula, batch, seq)
    way = direction(only, H)
    course = [value(only, {"hidden": n}, ["hidden"]) for n in range(1, 60)]
    if way is not None:
        assert all(way * (more - less) >= 0 for less, more in itertools.pairwise(course))
    if way == 0:
        assert len(set(course)) == 1


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("3*hidden^2 + hidden", 1),
        ("-2*floor((hidden + 1)/2) + 7", -1),
        ("floor((hidden - 1)/2)*ceiling(hidden/3)*batch", 1),
        ("floor((hidden - 7)/2)*hidden", None),  # negative at first
        ("Max(3*hidden, 100)/7 + 1/2", 1),
        ("1/floor((hidden + 3)/2)", -1),
        ("hidden - hidden^2", None),
        ("Mod(hidden, 3)", None),
        ("batch + seq", 0),
        ("(batch - seq)*hidden", None),
    ],
)
def test_directions_by_hand(text: str, way: int | None) -> None:
    assert direction(parse(text), H) == way


MEMORY = parse("12*hidden^2 + 100*batch*hidden + 500")


def test_the_largest_batch_that_fits_by_hand() -> None:
    """12·64² + 500 = 49,652 are fixed; 6,400 a sequence: (10⁶ - 49,652) / 6,400 = 148.49…"""
    found = asked("footprint <= 1 MB for batch", {"hidden": 64}, footprint=MEMORY)
    assert (found.value, found.end, found.proof) == (148, "largest", "roots")
    assert (found.left, found.right) == (49_652 + 148 * 6400, 10**6)
    assert plain(found.formula) == "(-12*hidden**2 + limit - 500)/(100*hidden)"
    assert found.why() == "for every whole number, by the roots of the polynomial"


@pytest.mark.parametrize(
    ("text", "value_", "end"),
    [
        ("q >= 10 for hidden", 10, "smallest"),
        ("q > 10 for hidden", 11, "smallest"),
        ("q < 10 for hidden", 9, "largest"),
        ("q == 10 for hidden", 10, "equal"),
        ("q >= 1 for hidden", 1, "smallest"),
        ("q <= 10 for hidden in 1:5", 5, "largest"),
        ("q >= 10 for hidden in 4:40:4", 12, "smallest"),
        ("1/q <= 1/10 for hidden", 10, "smallest"),
        ("1/q >= 1/10 for hidden", 10, "largest"),
        ("1/q <= 1/10 for hidden in 1:50", 10, "smallest"),
        ("10 >= q for hidden", 10, "largest"),
    ],
)
def test_ends_by_hand(text: str, value_: int, end: str) -> None:
    found = asked(text, q=H)
    assert (found.value, found.end) == (value_, end)


def test_beyond_floats_to_the_unit() -> None:
    bound = 10**40 + 12345
    found = asked(f"q <= {bound} for hidden", q=7 * H)
    assert found.value == bound // 7
    rounded = asked(f"q <= {10**18} for hidden", q=sympy.floor(H / 3) * 7)
    assert rounded.proof == "monotone"
    assert rounded.value == 3 * (10**18 // 7) + 2


def test_what_is_searched_says_how_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """floor(h/2) - h/4 grows, but neither its roots nor its shape tell."""
    q = sympy.floor(H / 2) - H / 4
    found = asked("q >= 10 for hidden", q=q)
    assert (found.value, found.proof, found.searched_to) == (40, "searched", 100_000)
    assert found.why() == "by trying every candidate up to 100000; not known beyond"
    monkeypatch.setattr("analysis.formula.solve.SEARCHED", 30)
    with pytest.raises(
        NoSolution, match=re.escape("no hidden satisfies q >= 10: hidden=1 has -0.25 and hidden=30 has 7.5")
    ):
        asked("q >= 10 for hidden", q=q)
    with pytest.raises(NoSolution, match="no largest hidden: every one up to 30 satisfies q <= 10"):
        asked("q <= 10 for hidden", q=q)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("q <= 0.5 KiB for batch", "no batch satisfies q <= 512 B: even batch=1 has 40.1 GiB"),
        (
            "q <= 1 KiB for batch in 8:16",
            "no batch satisfies q <= 1 KiB: batch=8 has 40.1 GiB and batch=16 has 40.1 GiB",
        ),
        ("q <= q + 1 for batch", "no largest batch: every one without end satisfies q <= q + 1"),
        ("q == 3 for batch", "no batch for which q == 3 exactly"),
        (
            "100 - 100/batch >= 200 for batch",
            "no batch satisfies 100 - 100/batch >= 200: batch=1 has 0 and it tends to 100 as batch grows",
        ),
        (
            "100 + 100/batch <= 50 for batch",
            "no batch satisfies 100 + 100/batch <= 50: batch=1 has 200 and it tends to 100 as batch grows",
        ),
    ],
)
def test_no_solution_is_one_line(text: str, words: str) -> None:
    with pytest.raises(NoSolution, match=re.escape(words)) as fault:
        solve(request(text, {"q": B + 43_057_000_000}, measures={"q": "B"}), {})
    assert "\n" not in str(fault.value)


def test_crossings() -> None:
    a, c, m = (symbol(name) for name in "acm")
    assert plain(crossing(a * B + c, m, "batch")) == "(-c + m)/a"
    assert sympy.simplify(crossing(a * B / (B + c), m, "batch") - c * m / (a - m)) == 0
    quadratic = crossing(a * B**2 + c * B, m, "batch")
    assert sympy.simplify(quadratic - (sympy.sqrt(c**2 + 4 * a * m) - c) / (2 * a)) == 0
    for none in (B**3, sympy.floor(B / 2), -(B**2), sympy.Integer(4)):
        assert crossing(none, m, "batch") is None


def test_a_time_bound_is_the_longer_of_the_two() -> None:
    """At 5e11 FLOP/s and 1e9 B/s: 2 b h² / 5e11 and 8 b h / 1e9 s; the second is longer up to h = 2000."""
    time_s = time_bound(2 * B * H**2, 8 * B * H, Rates(5e11, 1e9, ""))
    assert value(time_s, {"batch": 10, "hidden": 1000}) == Fraction(80_000, 10**9)
    assert value(time_s, {"batch": 10, "hidden": 4000}) == Fraction(2 * 10 * 4000**2, 5 * 10**11)
    found = solve(request("time <= 1 ms for batch", {"time": time_s}), {"hidden": 4000})
    assert (found.value, found.proof, found.formula) == (15, "monotone", None)  # 10⁻³ · 5e11 / 3.2e7 = 15.6
    width = solve(request("time <= 1 ms for hidden multiple of 8", {"time": time_s}), {"batch": 10})
    assert width.value == 5000  # √(10⁻³ · 5e11 / 20) = 5000 exactly, and memory would allow 12,500
    assert width.left == Fraction(1, 1000)


def test_a_devices_rates() -> None:
    found = rates("NVIDIA H200", "bf16")
    assert (found.bandwidth_bytes_per_s, found.ridge) == (4.8e12, Fraction(found.peak_flop_per_s) / Fraction(4.8e12))
    assert Rates(10.0, 4.0, "").ridge == Fraction(5, 2)
    with pytest.raises(ValueError, match="expected a device of the table of peaks, got 'H20O', nearest"):
        rates("H20O", "bf16")
    with pytest.raises(ValueError, match=r"H200.*: unknown unit: expected .*, got 'bf61', nearest"):
        rates("NVIDIA H200", "bf61")


def test_other_symbols_need_values() -> None:
    with pytest.raises(ValueError, match="expected a value for each of hidden, got none: no hidden"):
        asked("footprint <= 1 MB for batch", footprint=MEMORY)
    with pytest.raises(ValueError, match="expected batch to be solved for, got a fixed value of it"):
        asked("footprint <= 1 MB for batch", {"batch": 2, "hidden": 3}, footprint=MEMORY)
    extra = asked("footprint <= 1 MB for batch", {"hidden": 64, "layers": 3}, footprint=MEMORY)
    assert extra.value == 148
