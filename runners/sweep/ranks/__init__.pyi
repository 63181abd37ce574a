from .follower import follow
from .peers import RankPeers
from .session import RankSession

__all__ = [
    "RankPeers",
    "RankSession",
    "follow",
]
