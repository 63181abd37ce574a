"""docs/counters.md from made-up accounts: what is counted, what failed, what is left over."""

from __future__ import annotations

from reports.count.zoo_page import page

from results.records.accounts import Account, AccountCause


def account(model: str, size: int, counter: str, value: int | None, **more: object) -> Account:
    """Of a forward pass of 1,000 FLOP a sample."""
    exact = 1000 * size
    given = {"native_unit": "mac", "native_value": value, "flop": None if value is None else 2 * value} | {
        "exact_flop": exact,
        "flop_ratio": None if value is None else 2 * value / exact,
        "unexplained_flop": None if value is None else 0,
    }
    return Account(model=model, batch_size=size, counter=counter, **{"phase": "forward", **given, **more})  # type: ignore[arg-type]


def cause(model: str, size: int, name: str, flop: int) -> AccountCause:
    return AccountCause(
        model=model, batch_size=size, counter="fvcore", phase="forward", cause=name, kind="matmul", flop=flop
    )


ACCOUNTS = [
    account("small", 1, "fvcore", 500),  # × 1
    account("small", 32, "fvcore", 17600),  # × 1.1
    account("large", 1, "fvcore", 450, unexplained_flop=-7),  # × 0.9
    account("large", 1, "thop", None, status="crashed", reason="KeyError: 'x'"),
]
CAUSES = [cause("small", 1, "multiply_add_as_1", -500), cause("small", 32, "bias_counted", 1600)]


def table(text: str, title: str) -> list[list[str]]:
    """The rows of the table below a title, cell by cell."""
    lines = text.partition(f"## {title}\n")[2].partition("\n## ")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")][2:]


def test_each_batch_is_named_with_its_models():
    text = page(ACCOUNTS, CAUSES, {"torch": "2.15.0"}, "`somewhere`")
    head = " ".join(text.partition("## By counter")[0].split())
    assert "for 2 models, at batches 1 (2 models), 32 (1 models), in FLOP" in head
    assert "from the accounts in `somewhere`" in head
    assert "Versions: torch 2.15.0." in head


def test_a_counter_has_its_range_what_failed_and_the_largest_remainder():
    rows = {row[0]: row for row in table(page(ACCOUNTS, CAUSES, {}, "x"), "By counter")}
    assert rows["fvcore"][1:5] == ["forward", "3", "0", "**7**"]
    assert rows["fvcore"][5].endswith("(large)")
    assert rows["fvcore"][6].endswith("(small)")
    assert [float(cell.split(" (")[0]) for cell in rows["fvcore"][5:]] == [0.9, 1.1]
    assert rows["thop"][2:4] == ["0", "1"]


def test_a_failure_is_told_with_its_reason_and_a_model():
    assert table(page(ACCOUNTS, CAUSES, {}, "x"), "What failed") == [["thop", "1", "crashed: KeyError: 'x'", "large"]]


def test_a_cause_has_its_largest_share_of_the_exact_count():
    rows = {row[0]: row for row in table(page(ACCOUNTS, CAUSES, {}, "x"), "By cause")}
    assert rows["multiply add as 1"][2:] == ["fvcore", "50.0 % (fvcore)"]
    assert rows["bias counted"][2:] == ["fvcore", "5.00 % (fvcore)"]


def test_a_model_with_a_part_that_has_no_count_is_told_with_what_is_known():
    """No exact count of one pass: "≥", no ratio, and no failure of the counter's."""
    partial = {
        "exact_flop": None,
        "flop_ratio": None,
        "unexplained_flop": None,
        "at_least_flop": 128,
        "unknown_calls": 1,
    }
    rows = [
        account("own", 1, "flopledger", None, **partial),
        account("own", 1, "flopledger", 100, phase="backward"),
        account("own", 1, "fvcore", 64, **partial),
        account("back", 1, "flopledger", 500),
        account("back", 1, "flopledger", None, **{**partial, "phase": "backward", "at_least_flop": 7}),
    ]
    text = page(rows, [], {}, "x")
    assert table(text, "By model") == [["own", "≥ 128 FLOP", "–", "–"], ["back", "1.00 kFLOP", "–", "–"]]
    assert table(text, "By counter")[0][1:5] == ["forward", "1", "0", "unknown"]
