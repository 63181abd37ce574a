"""profile.html: one file, no network, one script that its policy admits; sorting and folding work in a browser."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from reports.profile.page import page
from results.records.step_profile import StepModule, StepProfile
from tests.support.fakes import page_reader
from tests.support.fakes.browser import looked_at
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


def test_untimed_says_so() -> None:
    text = Reader(page(untimed())).text
    assert "its utilization is not known here (no peak of fp32)" in text
    assert "No operation was timed." in text


def test_the_same_profile_gives_the_same_page(whole: str) -> None:
    assert page(PROFILE, PLOT) == whole


LOOK = """<!DOCTYPE html><title>not yet</title>
<iframe id="page" src="profile.html" style="width: {width}px; height: 900px; border: 0"></iframe>
<script>
addEventListener("load", () => {{
  const page = document.getElementById("page").contentDocument;
  const tree = page.getElementById("tree");
  const rows = () => [...tree.tBodies[0].rows].filter(row => !row.hidden).map(row => row.dataset.path);
  const click = (selector, n) => page.querySelectorAll(selector)[n].click();
  const said = {{wide: page.documentElement.scrollWidth, width: page.documentElement.clientWidth, first: rows()}};
  const lies = each => each.getBoundingClientRect();
  const steps = [...page.querySelector(".steps").children].map(lies);
  const rungs = steps.map((_, i) => steps.slice(3 * i, 3 * i + 3)).filter(rung => rung.length);
  const [top, bottom] = [rung => Math.min(...rung.map(r => r.top)), rung => Math.max(...rung.map(r => r.bottom))];
  said.ladder = rungs.map((rung, i) => i === 0 || top(rung) >= bottom(rungs[i - 1]));
  said.icicle_row = lies(page.querySelector(".icicle rect")).height;
  click("#tree thead .sort", 5); said.by_forward = rows();
  click("#tree thead .sort", 5); said.by_forward_up = rows();
  click("#tree thead .sort", 5); said.again = rows();
  click("#tree thead .sort", 8); said.by_utilization = rows();
  click("#tree thead .sort", 8); click("#tree thead .sort", 8);
  click("#tree tbody .fold", 1); said.folded = rows();
  said.expanded = tree.querySelectorAll("tbody .fold")[1].getAttribute("aria-expanded");
  const box = [...page.querySelectorAll(".icicle [data-path]")].find(each => each.dataset.path === "body.1");
  box.dispatchEvent(new MouseEvent("click")); said.revealed = rows();
  said.found = [...tree.querySelectorAll(".found")].map(row => row.dataset.path);
  click("button[data-unfold]", 0); said.shallow = rows();
  const kernels = page.getElementById("kernels-table");
  const column = [...kernels.tHead.rows[0].cells].findIndex(cell => cell.textContent === "bytes fused");
  kernels.tHead.rows[0].cells[column].firstElementChild.click();
  said.kernels = [...kernels.tBodies[0].rows].map(row => Number(row.cells[column].dataset.v));
  document.title = JSON.stringify(said);
}});
</script>"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1300])
def test_a_browser_sorts_and_folds(whole: str, tmp_path: Path, width: int) -> None:
    (tmp_path / "profile.html").write_text(whole)
    said = looked_at(tmp_path, LOOK.format(width=width))
    every = ["", "body", "body.0", "body.1", "head"]
    assert said["wide"] <= said["width"]
    assert said["ladder"] == [True] * 4  # each bar lies below the one before, with its own words
    assert said["icicle_row"] >= 18  # letters in it can be read
    assert said["first"] == said["again"] == every
    assert said["by_forward"] == every  # body 7 ms, of it 4 and 3; head 1
    assert said["by_forward_up"] == ["", "head", "body", "body.1", "body.0"]
    assert said["by_utilization"] == ["", "head", "body", "body.0", "body.1"]  # 0.5, 0.27; 0.44, 0
    assert said["folded"] == ["", "body", "head"]
    assert said["expanded"] == "false"
    assert said["revealed"] == every
    assert said["found"] == ["body.1"]
    assert said["shallow"] == ["", "body", "head"]
    assert said["kernels"] == [4000, 2500, 1500, 1000, 900, 104]
