"""What headless Chromium says of a page: a script of another page looks at it, and leaves JSON in its own title."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any


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
