"""Definition, law, injected fault: every step of a projection by hand, shipped formulas, and domain files refused."""

import itertools
import math
from typing import Any

import pytest

from analysis.formula.expressions import parse
from analysis.project import domain as domains
from analysis.project import frontier
from analysis.project.accelerator import Accelerator
from analysis.project.domain import Domain, Formulas, shipped_formulas

TARGET = Accelerator("a", 1e12, 1e10, memory_bytes=5e6, compute_ratio=0.5, memory_ratio=0.5)

SQUARE = Formulas(
    "square",
    "made up",
    {"width": 10, "depth": 3, "half": 5},
    {
        "parameters": parse("width**2*depth + half"),
        "all_flop": parse("6*batch*width**2*depth"),
        "bytes_accessed": parse("12*width**2*depth + 8*batch*width"),
        "kept_bytes": parse("4*width**2*depth + 4*half + 40*batch*width"),
    },
)

TABLES: dict[str, Any] = {
    "model": "square",
    "grows": "width",
    "sub_batch": 4,
    "sizes": {"depth": 2, "half": "floor(width/2)"},
    "learning_curve": {"beta_g": -0.5},
    "model_size": {"sigma": 2.0, "beta_p": 0.5},
    "error": {"now": 0.8, "target": 0.2},
    "data": {"now": 1e8, "unit": "word", "per_sample": 20},
}


def made(**changes: Any) -> Domain:
    return domains.from_tables({**TABLES, **changes}, "mine")


def test_a_projection_follows_its_chain_by_hand() -> None:
    found = frontier.project(made(), SQUARE, TARGET)
    assert found["data_scale"] == pytest.approx(16.0), "a quarter of the error at an exponent of a half"
    assert found["data"] == pytest.approx(1.6e9)
    assert found["parameters"] == pytest.approx(80_000.0), "2 · √1.6e9"
    assert found["grown"] == 200, "2 w² + ⌊w/2⌋ = 80,100 there, and 79,301 at 199"
    assert found["model_parameters"] == 80_100
    assert found["flop"] == 6 * 4 * 200**2 * 2
    assert found["moved_bytes"] == 12 * 200**2 * 2 + 8 * 4 * 200
    assert found["intensity"] == pytest.approx(found["flop"] / found["moved_bytes"])
    assert found["footprint_bytes"] == (4 * 80_000 + 4 * 100 + 40 * 4 * 200) + 4 * 80_100
    assert (found["bound"], found["step_s"]) == ("memory", pytest.approx(966_400 / 5e9))
    assert found["utilization_ratio"] == pytest.approx(1_920_000 / (966_400 / 5e9) / 1e12)
    assert found["steps"] == pytest.approx(1.6e9 / 20 / 4)
    assert found["epoch_s"] == pytest.approx(2e7 * 966_400 / 5e9)


def test_intervals_are_over_every_corner() -> None:
    domain = made(learning_curve={"beta_g": [-0.4, -0.5, -0.35]}, model_size={"sigma": [2.0, 1.0, 3.0], "beta_p": 0.5})
    middle, found = frontier.spread(domain, SQUARE, TARGET)
    corners = [
        frontier.project(made(learning_curve={"beta_g": b}, model_size={"sigma": s, "beta_p": 0.5}), SQUARE, TARGET)
        for b, s in itertools.product((-0.5, -0.35), (1.0, 3.0))
    ]
    assert found["epoch_s"].low == min(each["epoch_s"] for each in corners)
    assert found["epoch_s"].high == max(each["epoch_s"] for each in corners)
    assert found["data"].low < middle["data"] < found["data"].high
    _, plain = frontier.spread(made(), SQUARE, TARGET)
    assert plain["epoch_s"].low == plain["epoch_s"].high == plain["epoch_s"].value


def test_the_width_is_the_nearest_that_has_the_parameters() -> None:
    domain = made()

    def count(width: int) -> int:
        return 2 * width**2 + width // 2

    for wanted in (9.5, 30.0, 1234.0, 79_700.0, 79_701.0):
        nearest = min(range(2, 400), key=lambda width: (abs(count(width) - wanted), width))
        assert frontier.grown_for(domain, SQUARE, wanted) == nearest, wanted
    with pytest.raises(ValueError, match=r"square: expected 9 parameters or more, those at width 2, got 1"):
        frontier.grown_for(domain, SQUARE, 1.0)
    flat = Formulas("flat", "", {"width": 1, "depth": 1, "half": 1}, {"parameters": parse("depth")})
    with pytest.raises(ValueError, match="flat: expected 2 parameters or fewer, those at width"):
        frontier.grown_for(made(), flat, 1e6)
    with pytest.raises(ValueError, match=r"grows: unknown size of square.*'widht', nearest width"):
        frontier.grown_for(made(grows="widht", sizes={}), SQUARE, 1e6)


def test_the_largest_batch_is_the_last_that_fits() -> None:
    domain = made()
    largest = frontier.largest_batch(domain, SQUARE, TARGET, 200)

    def held(batch: int) -> float:
        return frontier.cost_of(domain, SQUARE, TARGET, 200, batch)["footprint_bytes"]

    assert held(largest) <= 5e6 < held(largest + 1)
    assert frontier.largest_batch(domain, SQUARE, TARGET, 2000) == 0
    with pytest.raises(ValueError, match="expected a known size of memory"):
        frontier.largest_batch(domain, SQUARE, Accelerator("b", 1.0, 1.0), 200)


def test_limits_are_those_of_the_formulas_and_the_fit_lies_near() -> None:
    domain = made()
    limits = frontier.asymptote(domain, SQUARE)
    assert limits["gamma"] == pytest.approx(6.0)
    assert limits["lambda"] == pytest.approx(12.0)
    assert limits["mu"] == pytest.approx(8 / math.sqrt(2)), "8 b w, and √p = w √2"
    assert limits["delta"] == pytest.approx(4 + 4)
    halves = frontier.asymptote(domain, SQUARE, element_bytes=2)
    assert {name: limits[name] / halves[name] for name in limits} == pytest.approx(
        {"gamma": 1.0, "lambda": 2.0, "mu": 2.0, "delta": 2.0}
    )
    fit = frontier.fit_sweep(domain, SQUARE, TARGET, 4000)
    assert fit.laws.gamma == pytest.approx(6.0, rel=1e-2)
    assert fit.laws.lambda_ == pytest.approx(12.0, rel=1e-2)
    assert fit.laws.mu == pytest.approx(8 / math.sqrt(2), rel=5e-2)
    assert fit.points == frontier.WIDTHS * len(frontier.BATCHES)
    assert isinstance(fit, frontier.FirstOrderFit)


BASE = {
    # Catamount's own asserts at base sizes: batch, parameters, FLOP, bytes, total footprint
    "wordlm": (64, 104_378_326, 2_597_058_084_257, 143_652_774_404, 49_660_373_192),
    "charlm": (128, 88_785_316, 10_228_050_930_711, 445_302_356_084, 156_135_676_796),
    "nmt": (128, 146_890_753, 1_053_984_410_589, 36_901_043_741, 14_551_615_608),
    "speech": (32, 71_084_729, 568_878_183_032, 92_231_419_797, 32_624_988_214),
    "resnet152": (32, 60_192_810, 2_222_688_328_992, 70_967_716_188, 27_971_880_088),
}


@pytest.mark.parametrize("model", BASE)
def test_both_rules_agree_on_the_products_and_differ_in_the_rest(model: str) -> None:
    """Catamount counts two or three scalar variables as parameters, and a gradient of the images."""
    theirs, ours = (shipped_formulas(rules)[model] for rules in ("catamount", "flopledger"))
    batch = BASE[model][0]
    assert theirs.exact("model_flop", batch=batch) == ours.exact("model_flop", batch=batch)
    assert 0 <= theirs.exact("parameters") - ours.exact("parameters") <= 2 * 40 + 3, "and speech's means"
    assert ours.exact("all_flop", batch=batch) > ours.exact("model_flop", batch=batch)
    assert ours.exact("bytes_accessed", batch=batch) < theirs.exact("bytes_accessed", batch=batch)


def test_shipped_formulas_are_those_that_the_command_makes() -> None:
    from analysis.project.domain import FILE, RULES
    from benchmarks.pages import frontier as pages_frontier

    lines = FILE.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line.startswith("wordlm,catamount,")]
    assert pages_frontier.table_of(pages_frontier.rows("wordlm", "catamount")).splitlines() == lines[:1] + kept
    for rules in RULES:
        assert set(shipped_formulas(rules)) == set(pages_frontier.MODELS)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"modle": "x"}, "unknown key: .*'modle', nearest model"),
        ({"model": ""}, "model: expected a word, got ''"),
        ({"sub_batch": 0}, "sub_batch: expected a whole number of at least 1, got 0"),
        ({"sub_batch": True}, "sub_batch"),
        ({"learning_curve": {"beta": -0.1}}, "unknown key of learning_curve: .*nearest beta_g"),
        ({"learning_curve": 3}, "learning_curve: expected a table"),
        ({"learning_curve": {}}, "learning_curve: expected beta_g, got none"),
        ({"learning_curve": {"beta_g": "x"}}, "learning_curve.beta_g: expected a number or"),
        ({"learning_curve": {"beta_g": [-0.1, -0.2]}}, r"expected a number or \[value, low, high\]"),
        ({"learning_curve": {"beta_g": [-0.1, -0.05, -0.2]}}, "with the value between"),
        ({"learning_curve": {"beta_g": [-0.1, -0.6, -0.05]}}, "beta_g: expected -0.5 to below 0, got -0.6"),
        ({"model_size": {"sigma": 1.0, "beta_p": [0.9, 0.8, 1.0]}}, "beta_p: expected 0.5 to below 1, got 1"),
        ({"model_size": {"sigma": -1.0, "beta_p": 0.9}}, "sigma: expected a number above 0, got -1"),
        ({"learning_curve": {"beta_g": -0.1, "floor": 0.2}}, "error.target: expected more than 0.2, the irreducible"),
        ({"error": {"target": 0.2}}, "expected error.now and data.now, or learning_curve.alpha"),
        ({"sizes": {"half": "floor(depth/2)"}}, "sizes.half: expected a formula in width"),
        ({"sizes": {"width": 3}}, "sizes.width: expected sizes besides the growing one"),
        ({"sizes": [1]}, "sizes: expected a table"),
        ({"sizes": {"depth": 1.5}}, "sizes.depth: expected a whole number"),
        ({"error": {"now": 1.0, "target": math.inf}}, "error.target: expected a number"),
        ({"name": 3}, "name: expected words, got 3"),
        ({"learning_curve": {"beta_g": math.nan}}, "learning_curve.beta_g: expected a number"),
        ({"learning_curve": {"beta_g": -0.1, "alpha": 0.0}}, "alpha: expected a number above 0"),
        (
            {"learning_curve": {"beta_g": -0.1, "floor": 2.0, "guess": 2.0}},
            "expected a floor from 0 to below the guess",
        ),
        ({"learning_curve": {"beta_g": -0.1, "guess": 0.1}}, "error.target: expected at most 0.1, the best guess"),
        (
            {"learning_curve": {"beta_g": -0.1, "floor": 0.15}, "error": {"now": 0.1, "target": 0.2}},
            "error.now: expected",
        ),
    ],
)
def test_a_file_that_cannot_be_is_refused_in_one_line(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        made(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", domains.ORDER)
def test_the_five_domains_can_be_projected(name: str) -> None:
    domain = domains.shipped(name)
    assert set(domain.sizes) | {domain.grows} <= set(shipped_formulas()[domain.model].sizes)
    assert frontier.project(domain, shipped_formulas()[domain.model], TARGET)["epoch_s"] > 0
    assert domain.error_unit
    assert domain.data_unit


def test_parameters_and_their_data_are_inverse() -> None:
    """2 · √m parameters: those of four times the data are twice as many."""
    one, four = (frontier.project(made(data={**TABLES["data"], "now": now}), SQUARE, TARGET) for now in (1e8, 4e8))
    assert four["parameters"] == pytest.approx(2 * one["parameters"])
    assert (one["parameters"] / 2) ** 2 == pytest.approx(one["data"])


def test_too_many_intervals_are_refused() -> None:
    changes = {
        "learning_curve": {"beta_g": [-0.3, -0.4, -0.2], "alpha": [2.0, 1.0, 3.0], "floor": [0.1, 0.0, 0.15]},
        "model_size": {"sigma": [2.0, 1.0, 3.0], "beta_p": [0.6, 0.5, 0.7]},
        "error": {"now": [0.8, 0.7, 0.9], "target": [0.3, 0.2, 0.4]},
    }
    with pytest.raises(ValueError, match="at most 6 numbers with an interval, got 7"):
        made(**changes)


def test_the_limits_of_the_word_model_are_its_leading_terms() -> None:
    """Of 16 h² parameters: 96 b q h² + 16 q h² + 48 h² FLOP, 384 q h² + 448 h² bytes, and b h (1,428 q + 56)."""
    domain = Domain("word", "wordlm", "hidden", 128, {}, {"vocab": 10004, "seq": 80})
    limits = frontier.asymptote(domain, shipped_formulas()["wordlm"])
    assert limits["gamma"] == pytest.approx((96 * 80 + (16 * 80 + 48) / 128) / 16, rel=1e-9)
    assert limits["lambda"] == pytest.approx((384 * 80 + 448) / 16, rel=1e-9)
    assert limits["mu"] == pytest.approx((1428 * 80 + 56) / 4, rel=1e-9)
