"""Law, injected fault: profile.html is well-formed whatever names it has, and its text fits a terminal of any width."""

from dataclasses import replace

import pytest

from reports.profile_tree import profile_page, tree_text
from results.records.answers import StepModule, StepProfile
from tests.support.fakes.page_reader import Reader
from tests.support.made_up.made_up_profile import MODULES, OPERATIONS, PROFILE, profile, untimed

HOSTILE = '<script>alert("x")</script>&amp;\'><img src=http://example.org/x onerror=1>'


def hostile() -> StepProfile:
    """Every name that a model's author chooses is an attack."""
    modules = (MODULES[0], replace(MODULES[1], type=HOSTILE, settings=HOSTILE), *MODULES[2:])
    more = StepModule(module=HOSTILE, type="Linear")
    return profile(model=HOSTILE, modules=(*modules, more), notes=(HOSTILE,))


@pytest.mark.parametrize("found", [PROFILE, untimed(), hostile(), profile(operations=OPERATIONS[:3])])
def test_the_form_is_whole_and_identifiers_are_unique(found: StepProfile) -> None:
    read = Reader(profile_page(found))
    assert read.faults == []
    ids = [attributes["id"] for _, attributes in read.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {attributes["href"] for tag, attributes in read.tags if tag == "a"}
    assert {f"#{name}" for name in ids} >= links


LONG = StepModule(
    module="body.2", type="AModuleOfAVeryLongNameIndeed" * 3, settings="[red]1[/red], kernel_size=(3, 3)" * 9
)


def plain(width: int, **more: object) -> str:
    return tree_text(profile(modules=(*MODULES[:4], LONG, MODULES[4])), width=width, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [60, 80, 100, 130, 160])
def test_no_line_is_longer_than_the_terminal(width: int) -> None:
    text = plain(width, operations=True)
    assert max(map(len, text.splitlines())) <= width
    assert "…" in text
