"""Digests that stand for what must not be written down."""

import hashlib


def hashed(identity: str) -> str:
    """16 hex digits that stand for a serial number or uuid: equal for the same card, and not the card's own.

    NVML writes "GPU-" before a uuid and torch does not; both give the same digits.
    """
    return hashlib.sha256(identity.removeprefix("GPU-").casefold().encode()).hexdigest()[:16]
