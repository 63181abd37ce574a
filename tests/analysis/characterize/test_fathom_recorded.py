"""Fathom's eight at the sizes and batches of their code, recorded on a CPU and kept: what only they can show.

`results/published/fathom-2026-11-22` was made by the commands that its README gives. Small sizes are recorded anew by
`tests/runners/characterize/test_characterize_fathom.py`; what the batch decides, as here, would take minutes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analysis.characterize.fathom_groups import FATHOM, GROUPS, MOST_UNCLASSIFIED_RATIO, figure3_groups
from analysis.characterize.operation_mix import Mix
from reports.characterize.answer import CharacterizeAnswer, look, paper_name
from reports.characterize.sections import to_text
from results.records.characterization import PROFILED
from runners.characterize.command import read_rows
from workloads.catalogue import entries
from workloads.catalogue.catalogue import entry

ROOT = Path(__file__).parents[3]
KEPT = ROOT / "results" / "published" / "fathom-2026-11-22"


OTHER_SIZES = {"fathom-speech@as_paper": {"frames": 156}}
"""A tenth of its own: the README says why."""


@pytest.fixture(scope="module")
def seen() -> CharacterizeAnswer:
    """Without the single calls, whose laws take seconds to fit."""
    return look(replace(read_rows(KEPT), calls=()), FATHOM, reproduce="fathom")


def coded(seen: CharacterizeAnswer) -> dict[str, Mix]:
    """The paper's name → the mix as coded."""
    return {paper_name(each): each for each in seen.compared if each.recording.variant == entries.AS_CODED}


def test_every_workload_was_trained_at_its_own_batch_with_its_own_optimizer(seen):
    assert set(coded(seen)) == set(figure3_groups())
    assert {each.recording.workload for each in seen.compared} == {
        *entries.FATHOM,
        *(name for name in entries.ENTRIES if name.endswith(f"@{entries.AS_PAPER}")),
    }
    for each in seen.compared:
        known = entry(each.recording.workload)
        assert (each.recording.batch_size, each.recording.optimizer) == (known.batch_size, "own")
        assert each.recording.hyper == {**known.hyper, **OTHER_SIZES.get(each.recording.workload, {})}


@pytest.mark.parametrize("name", ["speech", "autoenc", "residual", "vgg", "alexnet", "deepq"])
def test_the_largest_group_is_the_papers(seen, name):
    paper = figure3_groups()[name]
    assert coded(seen)[name].dominant == max(paper, key=lambda group: paper[group])


def test_nothing_is_unclassified_and_the_groups_are_the_step(seen):
    for each in seen.compared:
        assert each.unclassified_ratio <= MOST_UNCLASSIFIED_RATIO, each.label
        assert sum(each.groups[group].ratio for group in GROUPS) + each.unclassified_ratio == pytest.approx(1)


def test_a_profiled_step_is_its_operations_and_what_lies_between(seen):
    """The sum of the rows of a step's operations, recorded one by one, is what the step says it spent in them."""
    steps = {(step.recording, step.step): step for step in seen.data.steps if step.part == PROFILED}
    spent = dict.fromkeys(steps, 0.0)
    for row in seen.data.times:
        spent[row.recording, row.step] += row.time_s
    for place, step in steps.items():
        assert spent[place] == pytest.approx(step.operations_s, rel=1e-6)
        assert spent[place] <= step.time_s


def test_steps_had_their_core_as_the_readme_says(seen):
    """Timed without the profiler, on an idle machine: all steps of a recording together."""
    for each in seen.data.recordings:
        alone = [step for step in seen.data.steps if step.recording == each.recording and step.cpu_s is not None]
        assert 0.98 <= sum(step.cpu_s for step in alone) / sum(step.time_s for step in alone) <= 1.005, each.workload


def test_the_report_says_that_some_shares_are_of_one_step(seen):
    assert to_text(seen).startswith("Share of a step by group, per cent (median of 1 to 100 profiled steps)\n")
