"""What the next cell is taken to need, by what the cells before it took: by hand."""

import pytest

from runners.sweep.plan import SPARE_RATIO, Planning


def test_cells_in_a_fresh_process_are_learnt_apart() -> None:
    planning = Planning()
    planning.learn(True, 14.0, 40.0)
    assert planning.needs_s(False, 8.0) == pytest.approx(SPARE_RATIO * (8.0 + 26.0)), "until there is one of its kind"
    planning.learn(False, 8.0, 11.0)
    planning.learn(False, 8.0, 2.0)  # it failed at once
    assert planning.needs_s(False, 8.0) == pytest.approx(SPARE_RATIO * (8.0 + 3.0))
    assert planning.needs_s(True, 14.0) == pytest.approx(SPARE_RATIO * 40.0)
