"""Law, definition: footprints as formulas are those of real steps at points that no form was fitted to."""

from dataclasses import replace
from functools import cache

import pytest
import sympy

from analysis.footprint.live_bytes import footprint
from analysis.footprint.minimum import minimal
from analysis.formula import derive
from analysis.formula.derive import expression
from analysis.formula.expressions import names, symbol
from analysis.formula.expressions import value as value_at
from analysis.formula.footprint import QUANTITIES, Footprints, footprints, value
from runners.formula_points import SizedModel, axes, sampler
from runners.workers.any_model import get

EAGER, MINIMAL = QUANTITIES

MODELS = {
    "synthetic_matmul": ("batch", "width", "depth"),
    "wordlm": ("batch", "hidden", "vocab", "layers"),
    "squeezenet1_1": ("batch", "image"),
}
POINTS = {
    "synthetic_matmul": [{"batch": 7, "width": 40, "depth": 3}, {"batch": 900, "width": 16, "depth": 9}],
    "wordlm": [
        {"batch": 20, "hidden": 64, "vocab": 500, "layers": 3},
        {"batch": 4, "hidden": 300, "vocab": 40, "layers": 6},
    ],
    "squeezenet1_1": [{"batch": 5, "image": 96}, {"batch": 17, "image": 131}],
}
"""Model → where its minimal order is looked for, and another point."""


@cache
def looked(model: str):
    """(what gives a sample, the formulas, the footprints at the first point)."""
    subject = SizedModel(model, get(model).hyper, 32)
    look = sampler(subject)
    derived = derive.formulas(look, axes(subject, MODELS[model], look))
    return look, derived, footprints(derived, POINTS[model][0])


def of(model: str) -> Footprints:
    return looked(model)[2]


@pytest.mark.parametrize("model", MODELS)
def test_the_eager_footprint_is_that_of_whole_numbers_elsewhere(model: str) -> None:
    look, derived, found = looked(model)
    seen = [dict(sample.point) for _, sizes in derived.levels for sample in sizes.samples]
    assert found.why == {}
    for point in POINTS[model]:
        assert point not in seen
        sample = look(point)
        exact = footprint(
            sample.operations, sample.storages
        ).at_least_bytes  # all of it, but where an LSTM has a workspace
        assert value(found.peaks[EAGER], point) == exact
        formula = found.formula(EAGER)
        assert value_at(formula, {name: point[name] for name in names(formula)}) == exact


@pytest.mark.parametrize("model", MODELS)
def test_the_minimal_footprint_is_least_at_its_point_and_reached_elsewhere(model: str) -> None:
    look, _, found = looked(model)
    here, there = (minimal(look(p).operations, look(p).storages) for p in POINTS[model])
    assert value(found.peaks[MINIMAL], POINTS[model][0]) == here.minimal_bytes
    assert value(found.peaks[MINIMAL], POINTS[model][1]) >= there.lower_bound_bytes
    for point in POINTS[model]:
        assert value(found.peaks[MINIMAL], point) <= value(found.peaks[EAGER], point)


def test_a_chain_of_products_by_hand() -> None:
    """d products of w × w on a batch of b, SGD with momentum, 4 bytes a number.

    The first step of the eager optimizer has weights, momenta and gradients, 3 d w², what weight decay makes of a
    gradient, w², and beside these the batch, its target and the output, which the caller still holds: 3 b w; and the
    loss. In the minimal order no gradient is left at the end but the one that is used: (2 d + 2) w².
    """
    found = of("synthetic_matmul")
    b, w, d = map(symbol, ("batch", "width", "depth"))
    eager, least = (
        {each.key.phase: expression(each.form) for each in found.peaks[quantity]} for quantity in QUANTITIES
    )
    assert sympy.expand(eager["optimizer"] - (4 * (3 * d + 1) * w**2 + 12 * b * w + 4)) == 0
    assert sympy.expand(least["optimizer"].subs(b, 0) - 4 * (2 * d + 2) * w**2) == 0


def test_steps_that_are_not_alike_have_no_formula() -> None:
    """A storage that lives one operation longer at one of the samples."""
    _, derived, _ = looked("synthetic_matmul")
    fixed, sizes = derived.levels[0]
    sample = sizes.samples[-1]
    longer = next(s for s in sample.storages if s.died_index is not None and s.died_index + 1 < len(sample.operations))
    storages = tuple(replace(s, died_index=s.died_index + 1) if s is longer else s for s in sample.storages)
    other = replace(sizes, samples=(*sizes.samples[:-1], replace(sample, storages=storages)))
    changed = replace(derived, levels=((fixed, other), *derived.levels[1:]))
    assert "the lifetimes of storages are different at" in footprints(changed, POINTS["synthetic_matmul"][0]).why[EAGER]
