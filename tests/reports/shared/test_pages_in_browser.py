"""Law, injected fault: each HTML page in headless Chromium, at desktop and telephone width, light and dark.

Chromium starts once. A page that holds the others in frames looks at them (`page_look.js`): nothing on the console,
every figure there, only tables scroll sideways, letters that can be read, sorting and filtering, print, and names that
try to run.
"""

import html
import itertools
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reports.profile_tree import profile_page
from reports.sweep.page import page
from reports.trace.page import to_html
from runners import report as command
from tests.support.made_up import made_up_evidence, made_up_page, made_up_trace
from tests.support.made_up.made_up_profile import PROFILE


def looked_at(folder: Path, look: str) -> dict[str, Any]:
    """What the page `look`, written beside the pages of a folder, found; nothing may be said on the console."""
    browser = shutil.which("chromium")
    assert browser, "expected Debian's chromium"
    (folder / "look.html").write_text(look)
    words = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    words += [f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr", "--virtual-time-budget=5000"]
    words += ["--dump-dom", (folder / "look.html").as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert "CONSOLE" not in done.stderr, done.stderr
    said: dict[str, Any] = json.loads(html.unescape(re.findall(r"<title>(.*?)</title>", done.stdout)[0]))
    return said


pytestmark = pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")

LOOK = (Path(__file__).parents[2] / "data/page_look.js").read_text(encoding="utf-8")
PAGES = ("run", "hostile", "comparison", "profile", "trace")
WIDTHS = (1280, 390)
DARK, LIGHT = "rgb(20, 24, 28)", "rgb(255, 255, 255)"  # --paper of page.css
FRAMES = [(name, width, scheme) for name in PAGES for width in WIDTHS for scheme in ("light", "dark")]

HOSTILE = (
    "<script>top.hit='script'</script>",
    '"><img src=x onerror="top.hit=1">',
    "</script></style><svg onload=top.hit=2>",
    "javascript:top.hit=3",
    "=cmd|' /C calc'!A0",
    "long" * 1250,
    "\u202egnp.exe\u202c שלום",
    r"$\frac{1$ {{7*7}} %s",
)
"""Models: markup, the end of ours, an address, a formula, 5,000 letters, a turned direction, TeX and a template."""

SVG = '<svg width="360pt" height="216pt" viewBox="0 0 360 216" xmlns="http://www.w3.org/2000/svg"><text>x</text></svg>'
WIDE = SVG.replace('"360pt"', '"518pt"')


def frame(name: str, width: int, scheme: str) -> str:
    identity = f"{name}-{width}{'-dark' if scheme == 'dark' else ''}"
    look = f"width: {width}px; height: 500px; border: 0; color-scheme: {scheme}"
    return f'<iframe id="{identity}" src="{name}.html" style="{look}"></iframe>'


def hostile_run(path: Path) -> Path:
    """A run of eight cells, each of a model with one of the names."""
    parts = made_up_evidence.parts(tuple(("fp32", 8, repeat) for repeat in range(len(HOSTILE))))
    for part, name in zip(parts.cells.values(), HOSTILE, strict=True):
        part.run = replace(part.run, model=name, warnings=(f"busy: {name}",))
        part.counts = [replace(count, workload=name) for count in part.counts]
    parts.manifest = replace(parts.manifest, name=HOSTILE[0], commands=HOSTILE)
    return made_up_evidence.write(path, made=parts)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the browser says of each page, by its frame."""
    folder = tmp_path_factory.mktemp("pages")
    suite = made_up_page.suite(("resnet101", "resnet18", "vgg16"), (1, 64, 128), ("fp32", "amp-bf16"))
    (folder / "run.html").write_text(page(suite, {"utilization_by_model": SVG, "new": WIDE}), encoding="utf-8")
    (folder / "profile.html").write_text(profile_page(PROFILE), encoding="utf-8")
    (folder / "trace.html").write_text(to_html(made_up_trace.trace()), encoding="utf-8")
    run = hostile_run(folder / "of hostile names")
    assert command.main([str(run), "--out", str(folder / "out")]) == 0
    assert command.main([str(run), str(run), "--out", str(folder / "both")]) == 0
    shutil.copy(folder / "out" / "report.html", folder / "hostile.html")
    shutil.copy(folder / "both" / "report.html", folder / "comparison.html")
    frames = "".join(frame(*each) for each in FRAMES)
    return looked_at(folder, f'<!DOCTYPE html><meta charset="utf-8"><title>-</title>{frames}<script>{LOOK}</script>')


@pytest.fixture(params=FRAMES, ids=lambda each: "-".join(map(str, each)))
def seen(request: pytest.FixtureRequest, said: dict[str, Any]) -> dict[str, Any]:
    """One page at one width in one scheme."""
    name, width, scheme = request.param
    found: dict[str, Any] = said[f"{name}-{width}{'-dark' if scheme == 'dark' else ''}"]
    return {**found, "name": name, "window": width, "scheme": scheme}


def test_every_figure_is_there_and_nothing_is_asked_of_a_network(seen: dict[str, Any]) -> None:
    """Chromium's console is empty, or `looked_at` had failed."""
    least = {"run": 2, "hostile": 1, "comparison": 1, "profile": 0, "trace": 0}[seen["name"]]
    assert seen["images"] >= least
    assert seen["dead"] == 0
    assert seen["asked"] == []


def test_the_page_does_not_scroll_sideways(seen: dict[str, Any]) -> None:
    assert seen["wide"] <= seen["width"] <= seen["window"]


def test_a_figure_is_seen_whole(seen: dict[str, Any]) -> None:
    assert not seen.get("cut")


def test_letters_can_be_read_in_the_light_and_in_the_dark(seen: dict[str, Any]) -> None:
    """4.5 : 1 is what WCAG 2.2 asks of text (1.4.3, level AA)."""
    assert seen["background"] == (DARK if seen["scheme"] == "dark" else LIGHT)
    assert seen["contrast"]["ratio"] >= 4.5, seen["contrast"]


def test_headings_go_down_by_one_and_controls_have_names(seen: dict[str, Any]) -> None:
    levels = [int(name[1]) for name in seen["headings"].split()]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below <= above + 1 for above, below in itertools.pairwise(levels))
    assert seen["nameless"] == 0


def test_a_column_sorts_down_up_and_back(said: dict[str, Any]) -> None:
    """Utilizations are 5 % and 0.7 % more for each cell of the made-up suite, in its order."""
    found, used = said["used"], 1
    assert len(found["first"]) == 18
    values = [float(row[used].split()[0]) for row in found["used"] if row[used] != "–"]
    assert len(values) == 17
    assert values == sorted(values, reverse=True)
    assert found["used"][-1][used] == found["used_up"][-1][used] == "–"  # out of memory: last whichever way
    assert [row[used] for row in found["used_up"][:-1]] == [row[used] for row in found["used"][-2::-1]]
    assert found["again"] == found["first"]
    assert [name for name in found["sort"] if name] == ["descending"]
    assert [row[0] for row in found["model"]] == ["resnet18"] * 6 + ["resnet101"] * 6 + ["vgg16"] * 6


def test_words_filter_rows_and_print_has_all_of_them(said: dict[str, Any]) -> None:
    found = said["used"]
    assert found["focused"]
    assert [(row[0], *row[2:4]) for row in found["filtered"]] == [
        ("resnet18", str(size), "fp32") for size in (1, 64, 128)
    ]
    assert found["count"] == "3 of 18 rows"
    assert (found["printed"], found["tools"], found["boxes"]) == (18, 0, 0)


def test_no_name_runs_and_all_are_text(said: dict[str, Any]) -> None:
    assert said["hit"] == ""
    shown = [name.replace("\u202e", "\\u202e").replace("\u202c", "\\u202c") for name in HOSTILE]
    assert [name[:40] for name in shown if name not in said["text"]] == []
    assert "\u202e" not in said["text"]
    assert "49" not in said["text"].partition("{{7*7}}")[2][:5]
