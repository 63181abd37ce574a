"""Where documents placed `tree_text` before. Removed in the next version."""

import warnings

from reports.profile import tree_text

__all__ = ["tree_text"]

warnings.warn(f"{__name__} goes in the next version: use reports.profile.tree_text", FutureWarning, stacklevel=2)
