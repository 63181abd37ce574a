from .cache import Signature
from .mode import NOT_ON_FAKE, FakeMode, as_given, check_dense, fake_copy, fake_mode, quiet, to_fake

__all__ = [
    "FakeMode",
    "NOT_ON_FAKE",
    "Signature",
    "as_given",
    "check_dense",
    "fake_copy",
    "fake_mode",
    "quiet",
    "to_fake",
]
