from .clean import AT_LEAST, CleanedProfile, clean_profile, profile_counts, said_beside, traced_flop, why_unprofiled
from .instances import FORWARD, STEP

__all__ = [
    "AT_LEAST",
    "CleanedProfile",
    "FORWARD",
    "STEP",
    "clean_profile",
    "profile_counts",
    "said_beside",
    "traced_flop",
    "why_unprofiled",
]
