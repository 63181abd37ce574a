"""profile.html: one file, no network, one script that its policy admits; sorting and folding work in a browser."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace

import pytest

from reports.profile.page import page
from results.records.step_profile import StepModule, StepProfile
from tests.support.fakes import page_reader
from tests.support.made_up.made_up_profile import MODULES, OPERATIONS, PROFILE, profile, untimed

HOSTILE = '<script>alert("x")</script>&amp;\'><img src=http://example.org/x onerror=1>'
PLOT = '<svg width="360pt" height="216pt" viewBox="0 0 360 216" xmlns="http://www.w3.org/2000/svg"><text>x</text></svg>'


class Reader(page_reader.Reader):
    """This page has drawings whose tags close themselves."""

    VOID = page_reader.Reader.VOID | {"rect"}

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            super().handle_endtag(tag)

    @property
    def text(self) -> str:
        return "".join(self.texts)


@pytest.fixture(scope="module")
def whole() -> str:
    return page(PROFILE, PLOT)


def hostile() -> StepProfile:
    """Every name that a model's author chooses is an attack."""
    modules = (MODULES[0], replace(MODULES[1], type=HOSTILE, settings=HOSTILE), *MODULES[2:])
    more = StepModule(module=HOSTILE, type="Linear")
    return profile(model=HOSTILE, modules=(*modules, more), notes=(HOSTILE,))


@pytest.mark.parametrize("found", [PROFILE, untimed(), hostile(), profile(operations=OPERATIONS[:3])])
def test_the_form_is_whole_and_identifiers_are_unique(found: StepProfile) -> None:
    read = Reader(page(found, PLOT))
    assert read.faults == []
    ids = [attributes["id"] for _, attributes in read.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {attributes["href"] for tag, attributes in read.tags if tag == "a"}
    assert {f"#{name}" for name in ids} >= links


def test_nothing_is_loaded_and_one_script_may_run(whole: str) -> None:
    read = Reader(whole)
    assert not {tag for tag, _ in read.tags} & {"link", "iframe", "object", "embed", "base", "form"}
    assert [attributes for tag, attributes in read.tags if tag == "script"] == [{}]
    script = re.findall(r"<script>(.*?)</script>", whole, re.DOTALL)[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(a["content"] for tag, a in read.tags if tag == "meta" and "http-equiv" in a)
    assert policy.startswith("default-src 'none';")
    assert f"script-src 'sha256-{digest}'" in policy
    for _, attributes in read.tags:
        assert not [name for name in attributes if name.startswith("on")]
        assert all(value.startswith("data:") for name, value in attributes.items() if name == "src")


def test_names_are_text() -> None:
    read = Reader(page(hostile()))
    assert HOSTILE in read.text
    assert sum(tag == "script" for tag, _ in read.tags) == 1
    assert not [attributes for tag, attributes in read.tags if "onerror" in attributes]


def test_the_verdict_and_the_sums_are_told(whole: str) -> None:
    text = " ".join(Reader(whole).text.replace("\u00a0", " ").split())
    assert "net uses 30 % of what this device can calculate; at most 94 % is possible for it here." in text
    assert "operations 26.000 ms + between them 2.000 ms = step 28.000 ms" in text
    assert "bytes_per_s: copy, measured here" in text
    assert text.index("made up") < text.index("Why this number")  # a busy machine is told before its numbers
    assert "10.5 ms: 0.71" in text  # the ladder's third rung


def test_the_tables_have_a_row_each(whole: str) -> None:
    """5 modules, 8 kinds of operation, 6 kernels, and a header for each table."""
    read = Reader(whole)
    assert len(read.rows) == 5 + 8 + 6 + 3
    body = next(row for row in read.rows if row[0].startswith("body: Sequential"))
    # a rate over the time of its share, waits included: 24,000 FLOP ÷ (21 ms + 1.5 ms)
    assert [" ".join(cell.split()) for cell in body[1:]] == [
        "80.0 80 %", "4.00 k", "24.0 k 80 %", "11.0 kB", "7.00 ms 82 %", "14.0 ms 88 %", "1.50 ms", "1.07 M", "0.267",
        "arithmetic",
    ]  # fmt: skip
    kernel = next(row for row in read.rows if row[0].startswith("mm head"))
    assert kernel[1:6] == ["normalisation", "backward", "2", "5.00 kB", "1.50 kB"]


def test_the_same_profile_gives_the_same_page(whole: str) -> None:
    assert page(PROFILE, PLOT) == whole
