"""Definition, injected fault: a pasted number or formula beside a count, and the steps that explain the difference.

Each part of the difference is derived beside its test.
"""

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from reports.count import explain as count_pasted
from reports.count.answer import ModelCounts
from reports.count.explain import ATTENTION, EMBEDDED, OTHERS, WEIGHTS, StepTerms, formula_parts, parse
from reports.shared.layout import page
from results.records.answers import Attribution, AttributionCause
from runners import count as command
from tests.support.fakes.commands import running

MODEL: dict[str, Any] = {"model": "net", "batch_size": 4}


def account(counter: str, phase: str, native: int, exact: int, unit: str) -> Attribution:
    flop = 2 * native if unit == "mac" else native
    return Attribution(**MODEL, counter=counter, phase=phase, native_unit=unit, native_value=native, flop=flop,
                   exact_flop=exact, flop_ratio=flop / exact, unexplained_flop=0)  # fmt: skip


def cause(counter: str, phase: str, name: str, flop: int) -> AttributionCause:
    return AttributionCause(**MODEL, counter=counter, phase=phase, cause=name, kind="matmul", flop=flop)


@pytest.fixture
def counted() -> ModelCounts:
    """300,000,000 multiply-adds forward; fvcore adds 14,193,216 of a normalisation; own counts both passes in FLOP."""
    return ModelCounts(
        **MODEL, parameters=None, exact={"forward": 600_000_000, "backward": 1_200_000_000}, other_flop={},
        not_understood={},
        attributions=(
            account("fvcore", "forward", 314_193_216, 600_000_000, "mac"),
            account("own", "forward", 600_000_000, 600_000_000, "flop"),
            account("own", "backward", 1_200_000_000, 1_200_000_000, "flop"),
            Attribution(**MODEL, counter="thop", phase="forward", status="crashed", reason="it fell over"),
        ),
        causes=(
            cause("fvcore", "forward", "normalization_counted", 14_193_216),
            cause("fvcore", "forward", "multiply_add_as_1", -300_000_000),
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "value", "unit", "step"),
    [
        ("fvcore=314M", 314_000_000, "", 1_000_000),
        ("fvcore = 314,193,216", 314_193_216, "", 1),
        ("ptflops=320.2 MMac", 320_200_000, "mac", 100_000),
        ("1.82 GMACs", 1_820_000_000, "mac", 10_000_000),
        ("x=3.6GFLOPs", 3_600_000_000, "flop", 100_000_000),
        ("x=1814073344.0", 1_814_073_344, "", Fraction(1, 10)),
        ("x=1.8e9 ops", 1_800_000_000, "", 100_000_000),
        ("x=5k", 5_000, "", 1_000),
        ("x=2T", 2 * 10**12, "", 10**12),
    ],
)
def test_a_number_is_read_with_its_unit_and_its_last_digit(text: str, value: int, unit: str, step: Any) -> None:
    (found,) = count_pasted.parse(text)
    assert (found.value, found.unit, found.step) == (value, unit, step)


@pytest.mark.parametrize(
    ("text", "counter", "passes", "words"),
    [
        ("fvcore=314M", "fvcore", ("forward",), None),
        ("fvcore=315M", "fvcore", ("forward",), "no match"),  # 314.19 is rounded to 314, and cut off to 314
        ("fvcore=0.3G", "fvcore", ("forward",), None),
        ("fvcore=628M", "fvcore", ("forward",), "given with a multiply-add as 2"),
        ("fvcore=78.5M", "fvcore", ("forward",), "given for one sample"),  # 314.193 ÷ 4 = 78.548
        ("fvcore=157.1M", "fvcore", ("forward",), "given with a multiply-add as 2, given for one sample"),
        ("own=1.8G", "own", ("forward", "backward"), None),
        ("own=1.2G", "own", ("backward",), None),
        ("own=300M", "own", ("forward",), "given with a multiply-add as 1"),
        ("314.2M", "fvcore", ("forward",), None),
        ("600M", "own", ("forward",), None),
    ],
)
def test_which_number_it_is(
    counted: ModelCounts, text: str, counter: str, passes: tuple[str, ...], words: str | None
) -> None:
    (number,) = count_pasted.parse(text)
    found = count_pasted.explain(counted, number)
    assert (found.counter, found.passes) == (counter, passes)
    assert found.matched == (words != "no match")
    scaled = [name for name, _ in found.causes if name.startswith("given")]
    assert scaled == ([] if words in (None, "no match") else [words])
    assert found.exact_flop is not None
    assert found.unexplained is not None
    steps = sum((change for _, change in found.causes), Fraction(0))
    assert found.exact_flop + steps + found.unexplained == number.value, "every FLOP of the way is told"
    assert bool(found.unexplained) == (words == "no match")


def test_the_exact_count_is_found_by_its_name_in_options() -> None:
    (number,) = count_pasted.parse("exact=3.6G")
    assert number.counter == "flopledger"


def test_the_way_is_told_with_the_conversion_first(counted: ModelCounts) -> None:
    found = count_pasted.explain(counted, count_pasted.parse("fvcore=314M")[0])
    assert page(count_pasted.to_lines(counted, found)).splitlines() == [
        "fvcore=314M: fvcore's forward, 314,193,216 MAC",
        "   314,000,000  as pasted",
        "  +300,000,000  a multiply-add is counted as 1, not as 2 FLOP: × 2",
        "   -14,193,216  batch, layer, group or instance normalisation is counted",
        "      +193,216  rounded",
        "   600,000,000  FLOP, the exact forward",
    ]
    assert count_pasted.document(found)["causes"][0] == {
        "cause": "a multiply-add is counted as 1, not as 2 FLOP",
        "flop": -300_000_000,
    }


@pytest.mark.parametrize("text", ["1e999999999", "a=1e99999999G", "1e-999999999", "9" * 5_000, "1e" + "9" * 400])
def test_a_number_that_no_count_can_have_is_refused_at_once(text):
    """Its digits are not written out: 10 to the power of 999,999,999 takes minutes and 400 MB."""
    with pytest.raises(ValueError, match="expected a number of at most 60 digits, got '") as fault:
        count_pasted.parse(text)
    assert len(str(fault.value)) < 200


STEP = StepTerms(
    {"L": 2, "H": 3, "Q": 4, "T": 5, "V": 7, "B": 11, "E": 84},
    {WEIGHTS: 1000, EMBEDDED: 84, OTHERS: 16},
    {WEIGHTS: 100, ATTENTION: 10},
    {WEIGHTS: 290, ATTENTION: 30},
)
TOKENS = 5 * 11


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("6N", {WEIGHTS: 6000 * TOKENS, EMBEDDED: 6 * 84 * TOKENS, OTHERS: 96 * TOKENS}),
        ("6n_nonembedding", {WEIGHTS: 6000 * TOKENS, EMBEDDED: 0, OTHERS: 96 * TOKENS}),
        ("palm", {WEIGHTS: 6000 * TOKENS, EMBEDDED: 504 * TOKENS, OTHERS: 96 * TOKENS, ATTENTION: 1440 * TOKENS}),
        ("megatron", {WEIGHTS: TOKENS * (72 * 2 * 144 + 6 * 12 * 7), ATTENTION: TOKENS * 12 * 5 * 2 * 12}),
        ("3x-forward", {WEIGHTS: 300, ATTENTION: 30}),
    ],
)
def test_each_term_stands_for_its_operations(text, terms):
    (pasted,) = parse(text)
    assert formula_parts(pasted.formula, STEP) == terms


def test_a_transformer_differs_from_its_formulas_by_what_they_leave_out(capsys):
    """d = 64, 2 layers, 2 heads of 32, 32 tokens of 300 words, 3 samples; the head has the embedding's weights."""
    sizes = "d_model=64,layers=2,heads=2,seq=32,vocab=300"
    arguments = ("gpt", "--size", sizes, "--batch-size", 3, "--explain", "palm,megatron", "--format", "json")
    code, out, _ = running(command.main, capsys)(*arguments)
    palm, megatron = json.loads(out)
    tokens = 3 * 32
    layers, head, attention = 72 * 2 * 64**2 * tokens, 6 * 64 * 300 * tokens, 12 * 2 * 64 * 32 * tokens
    assert code == 0
    assert megatron["given"] == megatron["exact_flop"] == layers + head + attention
    assert megatron["causes"] == []
    causes = {each["cause"]: each["flop"] for each in palm["causes"]}
    # 300 words and 32 positions are looked up; 4 d² + d a layer of biases and norms make no product
    assert causes[EMBEDDED] == 6 * 64 * (300 + 32) * tokens
    assert causes[WEIGHTS] == -head
    assert ATTENTION not in causes
    assert palm["given"] - sum(causes.values()) == palm["exact_flop"]


@pytest.mark.parametrize("text", ["", ",", "fvcore", "fvcore=", "fvcore=many", "fvcore=3X", "=5M"])
def test_what_is_no_number_is_one_line(text: str) -> None:
    with pytest.raises(ValueError, match="expected COUNTER=NUMBER, as in fvcore=314M"):
        count_pasted.parse(text)


def test_a_count_that_is_partial_explains_no_number_and_says_so(counted: ModelCounts) -> None:
    attributions = [replace(each, exact_flop=None, unexplained_flop=None) for each in counted.attributions]
    found = count_pasted.explain(replace(counted, attributions=attributions), count_pasted.parse("fvcore=314M")[0])
    assert (found.matched, found.exact_flop, found.causes) == (False, None, ())
    assert found.reason == "fvcore: the exact count is partial, so that no number is explained by it"


@pytest.mark.parametrize("text", ["foo", "6X", "N+", "6*N*T*B", "__import__", "(N"])
def test_what_is_no_formula_is_refused(text):
    with pytest.raises(ValueError, match="or one of 6n, 6n_nonembedding, palm, megatron, 3x_forward; got"):
        parse(text)
