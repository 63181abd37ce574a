"""Command: each block of docs/first-hour.md runs, and an exit code or a heading that the page lacks is reported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.first_hour.__main__ import main, run, wrong_in
from benchmarks.first_hour.page import PAGE, layout, tasks

ROOT = Path(__file__).parents[2]

MADE_UP = """\
# Tasks

## 1. One

```python
# one.py
print("name  size\\n──────────\\na       1")
```

```sh
python one.py # exit code 0
```

```text
name  size
──────────
b       2
```

## 2. Two

```sh
exit 5 # exit code 5
```

```text
```
"""


def test_the_page_has_ten_tasks_with_what_each_prints() -> None:
    found = tasks(PAGE.read_text(encoding="utf-8"))
    assert [task.number for task in found] == list(range(1, 11))
    assert all(task.shown.strip() for task in found)
    assert found[4].exit_code == 5  # the change is slower


def test_blocks_are_pasted_and_headings_compared(tmp_path: Path) -> None:
    one, two = tasks(MADE_UP)
    done, said = run(one, tmp_path, Path(sys.executable), 60.0)
    assert (done.exit_code, done.wrong) == (0, "")
    assert layout(said) == ["name size"]
    assert run(two, tmp_path, Path(sys.executable), 60.0)[0].wrong == ""
    assert wrong_in(two, 1, "", "first\nlast\n") == "exit code 1, expected 5: last"
    assert wrong_in(one, 0, "name  weight\n────────────\na  1", "") == (
        "the page shows a heading that is not printed: name size"
    )


@pytest.mark.slow
def test_every_block_runs_in_a_fresh_clone(tmp_path: Path) -> None:
    """With this Python's environment; a busy machine may take longer than three minutes for one."""
    if subprocess.run(["git", "-C", str(ROOT), "rev-parse"], capture_output=True, check=False).returncode:
        pytest.skip("no git checkout")
    os.environ.pop("COLUMNS", None)
    assert main(["--out", str(tmp_path), "--python", sys.executable, "--limit", "1200"]) == 0
