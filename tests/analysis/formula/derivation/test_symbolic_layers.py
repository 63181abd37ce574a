"""Where symbols change the operations themselves: how often a step is looked at, and that nothing wrong is told."""

from dataclasses import replace
from fractions import Fraction

import pytest

from analysis.formula.derivation.derive import formulas
from analysis.formula.derivation.interpolate import Atom, times
from analysis.formula.derivation.sampling import Axis, Unfitted
from tests.analysis.formula.derivation.test_symbolic import product


def layered(point, k=lambda point: 4):
    """layers times the mm of (n × k) and (k × n)."""
    row = product(point, k(point)).operations[0]
    rows = tuple(replace(row, index=i, module=f"layers.{i}") for i in range(point["layers"]))
    return replace(product(point, k(point)), operations=rows)


LAYERS = [Axis("n", 3), Axis("layers", 2, loops=True)]


def test_more_layers_are_looked_at_and_the_last_confirms_the_formulas_of_the_others():
    """2, 3 and 4 layers have forms, and 5 check them: 2·4·n² FLOP a layer."""
    found = formulas(layered, LAYERS)
    assert found.total("model_flop") == times({((Atom("n"), 2),): Fraction(8)}, {((Atom("layers"), 1),): Fraction(1)})
    assert [fixed["layers"] for fixed, _ in found.levels] == [2, 3, 4, 5]
    assert {point["layers"] for point in found.checked} == {2, 5}


def test_a_size_that_only_more_layers_have_otherwise_is_not_told():
    """k is 4, and 5 where three layers or more are wider than where the first of them were looked at."""
    narrow = formulas(layered, LAYERS).levels[1][1].samples[1].point["n"]
    with pytest.raises(Unfitted):
        formulas(lambda point: layered(point, lambda at: 5 if at["layers"] > 2 and at["n"] > narrow else 4), LAYERS)
