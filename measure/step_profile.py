"""Where documents placed `profile_step` before. Removed in the next version."""

import warnings

from measure.profile import profile_step

__all__ = ["profile_step"]

warnings.warn(f"{__name__} goes in the next version: use flopledger.profile_step", FutureWarning, stacklevel=2)
