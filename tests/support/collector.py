"""Keeps what is alive when a test file begins out of the cyclic collector's reach.

With all tests and torch in memory `gc.collect()` takes half a second, and timing calls it between its blocks, ten
times a cell. What a test makes is collected as ever. Claims nothing about what dies within a file after the product
froze it: that is freed when the file has ended.
"""

import gc
from pathlib import Path

freeze, unfreeze = gc.freeze, gc.unfreeze
"""The real ones, for tests of what the product leaves behind."""


class Frozen:
    """The test files of this process, one after the other. more: the product froze something since the file began.

    Counting what is frozen would take as long as collecting it.
    """

    def __init__(self) -> None:
        self.path: Path | None = None
        self.more = True

    def begin(self, path: Path) -> None:
        """A test of this file begins."""
        if path == self.path:
            return
        if self.more:
            unfreeze()  # or garbage among it would stay
        gc.collect()
        freeze()
        gc.freeze, gc.unfreeze = self._freeze, _keep
        self.path, self.more = path, False

    def _freeze(self) -> None:
        self.more = True
        freeze()


def _keep() -> None:
    """In the place of `gc.unfreeze`, with which timing ends: it would thaw all that was there before."""
