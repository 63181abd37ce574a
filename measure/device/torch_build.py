"""What the installed torch was built for, read from its files, so that the parent process need not import it."""

import importlib.util
import re
from pathlib import Path


def torch_build(field: str) -> str | None:
    """A field of `torch.version` that is a text ("cuda", "hip"), read from torch's files; None if unset or no torch."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(rf"^{field}\b[^=\n]*=\s*'([^']+)'", text, re.MULTILINE)
    return found.group(1) if found else None
