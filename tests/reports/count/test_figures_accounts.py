"""The waterfall: steps lead from a counter's number to the exact one to the last FLOP, and the picture shows them."""

from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from cleaning.accounts.items import CONVENTION
from reports.count import waterfall_figure
from reports.count.waterfall_figure import MOST_CAUSES
from results.records.answers import Account, AccountCause


def account(counter: str, native: int | float | None, **more: Any) -> Account:
    """Of a model with 1,000 exact FLOP, all explained unless told otherwise."""
    values = {"model": "net", "batch_size": 2, "phase": "forward", "native_unit": "mac", "exact_flop": 1000}
    left = None if native is None else 0
    return Account(**{**values, "counter": counter, "native_value": native, "unexplained_flop": left, **more})


def cause(counter: str, name: str, flop: int | float, **more: Any) -> AccountCause:
    values = {"model": "net", "batch_size": 2, "phase": "forward", "kind": "convolution", "module": "a"}
    return AccountCause(**{**values, "counter": counter, "cause": name, "flop": flop, **more})


def steps(*causes: AccountCause, native: int | float, **more: Any) -> list[tuple[str, float, float, int]]:
    return [
        (s.cause, float(s.begin), float(s.end), s.count)
        for s in waterfall_figure.steps(account("c", native, **more), causes)
    ]


def test_steps_undo_each_cause_the_convention_first_then_the_largest() -> None:
    # exact 1000 − 100 of the convention − 800 not seen + 2 and 5 (two kinds of one cause: 7) = 107 as the counter says
    found = steps(
        cause("c", "bias_counted", 2),
        cause("c", "bias_counted", 5, kind="matmul"),
        cause("c", "attention_not_seen", -800),
        cause("c", CONVENTION, -100),
        native=107,
    )
    assert found == [
        (CONVENTION, 107, 207, 1),
        ("attention_not_seen", 207, 1007, 1),
        ("bias_counted", 1007, 1000, 1),
    ]


def test_many_causes_are_merged_from_the_smallest_up_and_their_sum_is_exact() -> None:
    parts = [-500, 64, 32, 16, 8, 4, 2, 1]  # the first five stay, 4 + 2 + 1 = 7 are one step
    names = [CONVENTION, *(f"cause{i}" for i in range(7))]
    found = steps(*(cause("c", n, f) for n, f in zip(names, parts, strict=True)), native=1000 + sum(parts))
    assert [step[0] for step in found] == [*names[:5], ""]
    assert found[-1] == ("", 1007, 1000, 3)
    assert (
        len(steps(*(cause("c", n, f) for n, f in list(zip(names, parts, strict=True))[:6]), native=624)) == MOST_CAUSES
    )


@given(st.lists(st.integers(-(10**15), 10**15), max_size=12), st.integers(-50, 50))
def test_the_way_has_no_gap_and_ends_at_the_exact_count(parts: list[int], left: int) -> None:
    native = 1000 + sum(parts) + left
    way = waterfall_figure.steps(
        account("c", native, unexplained_flop=left), [cause("c", f"cause{i}", flop) for i, flop in enumerate(parts)]
    )
    ends = [Fraction(native), *(step.end for step in way)]
    assert [step.begin for step in way] == ends[:-1]
    assert ends[-1] == 1000


def drawn(accounts: list[Account], causes: list[AccountCause]) -> dict[str, Figure]:
    return waterfall_figure.waterfalls(accounts, causes)


def test_the_number_of_each_step_stands_in_its_row() -> None:
    causes = [cause("c", CONVENTION, -500), cause("c", "normalization_counted", 40), cause("c", "conv_lost", -20)]
    (figure,) = drawn([account("c", 520)], causes).values()
    numbers = [text.get_text() for text in figure.axes[0].texts]
    assert numbers == ["1.00 kFLOP", "520 MAC, 0.52000 ×", "+500, +50 %", "−40, −4.0 %", "+20, +2.0 %"]


def test_a_counter_without_a_number_has_the_reason_and_one_without_this_pass_is_named() -> None:
    accounts = [
        account("c", 1000),
        account("broken", None, status="crashed", reason="the process died of signal 11"),
        account("c", 2000, phase="backward", exact_flop=2000),
        account("only_forward", 1000),
    ]
    found = drawn(accounts, [])
    assert list(found) == ["waterfall_net_forward", "waterfall_net_backward"]
    forward = found["waterfall_net_forward"]
    assert any("died of signal 11" in text.get_text() for axes in forward.axes for text in axes.texts)
    below = found["waterfall_net_backward"].get_supxlabel()
    assert "no number for this pass: only_forward" in below
    assert "no number" not in forward.get_supxlabel()
