"""Known answer, law: in Fathom's kept run the largest groups are the paper's, and all groups add up to the step.

`results/published/fathom-2026-11-22` was made by the commands that its README gives. Small sizes are recorded anew by
`tests/runners/characterize/test_characterize_fathom.py`; what the batch decides, as here, would take minutes.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from analysis.characterize.fathom_groups import GROUPS, MOST_UNCLASSIFIED_RATIO, figure3_groups
from analysis.characterize.operation_mix import Mix
from reports.characterize import CharacterizeAnswer, analyse, paper_name
from runners.characterize import read_rows
from workloads.catalogue import entries

KEPT = Path(__file__).parents[3] / "results" / "published" / "fathom-2026-11-22"


@pytest.fixture(scope="module")
def seen() -> CharacterizeAnswer:
    """Without the single calls, whose laws take seconds to fit."""
    return analyse(replace(read_rows(KEPT), calls=()), reproduce="fathom")


def coded(seen: CharacterizeAnswer) -> dict[str, Mix]:
    """The paper's name → the mix as coded."""
    return {paper_name(each): each for each in seen.compared if each.recording.variant == entries.AS_CODED}


@pytest.mark.parametrize("name", ["speech", "autoenc", "residual", "vgg", "alexnet", "deepq"])
def test_the_largest_group_is_the_papers(seen, name):
    paper = figure3_groups()[name]
    assert coded(seen)[name].dominant == max(paper, key=lambda group: paper[group])


def test_nothing_is_unclassified_and_the_groups_are_the_step(seen):
    for each in seen.compared:
        assert each.unclassified_ratio <= MOST_UNCLASSIFIED_RATIO, each.label
        assert sum(each.groups[group].ratio for group in GROUPS) + each.unclassified_ratio == pytest.approx(1)
