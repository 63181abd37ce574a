from .clean import (
    AT_LEAST,
    CleanedProfile,
    clean_profile,
    mark_outside_step,
    profile_counts,
    why_unprofiled,
)
from .instances import FORWARD, STEP

__all__ = [
    "AT_LEAST",
    "CleanedProfile",
    "FORWARD",
    "STEP",
    "clean_profile",
    "profile_counts",
    "mark_outside_step",
    "why_unprofiled",
]
