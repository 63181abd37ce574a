from .crew import Crew
from .follower import follow
from .session import RankSession

__all__ = [
    "Crew",
    "RankSession",
    "follow",
]
