"""Where documents placed `flop_counter_mode` before. Removed in the next version."""

import warnings

from measure.counters.harness import flop_counter_mode

__all__ = ["flop_counter_mode"]

warnings.warn(f"{__name__} goes in the next version: use flopledger.flop_counter_mode", FutureWarning, stacklevel=2)
