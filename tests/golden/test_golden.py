"""Known answer: the answers of this version are the stored golden answers, each within its tolerance."""

import pytest

from tests.golden import TOLERANCE, differences, read
from tests.golden.make import ANSWERS, PLAIN, TOLERANCES


def first(row: dict[str, str]) -> str:
    return next(iter(row.values()))


@pytest.mark.parametrize("name", [name for name in sorted(ANSWERS) if PLAIN.get(name) != []])
def test_a_sample_of_the_answers_is_golden(name: str) -> None:
    cases = PLAIN.get(name)
    stored = [row for row in read(name) if cases is None or first(row) in cases]
    assert stored
    lines = differences(
        ANSWERS[name](lambda case: cases is None or case in cases), stored, TOLERANCES.get(name, TOLERANCE)
    )
    assert not lines, "\n".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PLAIN))
def test_all_answers_are_golden(name: str) -> None:
    lines = differences(ANSWERS[name](lambda _: True), read(name), TOLERANCES.get(name, TOLERANCE))
    assert not lines, "\n".join(lines)
