"""docs/tables.md: what can be pasted runs, and prints what the page says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import sympy

PAGE = (Path(__file__).parents[2] / "docs" / "tables.md").read_text(encoding="utf-8")


def test_the_page_can_be_pasted():
    code = "\n".join(line.removeprefix("    ") for line in PAGE.splitlines() if line.startswith("    "))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "docs/tables.md", "exec"), {})  # the page's own code
    said = re.findall(r"^    print\(.*\)  +# (.*)$", PAGE, re.MULTILINE)
    lines = printed.getvalue().splitlines()
    b, h, ridge = sympy.symbols("batch hidden ridge", integer=True, positive=True)
    told = [sympy.sympify(line, locals={"batch": b, "hidden": h, "ridge": ridge}) for line in (*lines[:4], *lines[5:])]
    assert lines[:3] == said[:3]
    assert lines[3] == said[3]
    assert lines[4].startswith("Max(")
    assert "peak" in lines[4]
    assert "bandwidth" in lines[4]
    # 8·b·h² ≥ r·4·(b·h + 4·h² + 4·b·h): b·(2·h − 5·r) ≥ 4·r·h
    assert sympy.simplify(told[4] - 4 * ridge * h / (2 * h - 5 * ridge)) == 0
    assert told[5] == sympy.Rational(4 * 20 * 4096, 2 * 4096 - 100)
    assert lines[7] == said[-1].partition(":")[0]
