"""docs/tables.md: what can be pasted runs, and prints what the page says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "tables.md").read_text(encoding="utf-8")


def test_the_page_can_be_pasted():
    code = "\n".join(line.removeprefix("    ") for line in PAGE.splitlines() if line.startswith("    "))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "docs/tables.md", "exec"), {})  # the page's own code
    said = re.findall(r"^    print\(.*\)  +# (.*)$", PAGE, re.MULTILINE)
    lines = printed.getvalue().splitlines()
    assert lines == said
