from .collective_rates import COLLECTIVES, CollectiveRate, sent_share
from .ledger import Collective, Ledger, RankWork, Recording, ledger_of
from .link_use import LinkUse, link_uses
from .rank_grid import (
    REPLICAS,
    SCHEDULES,
    Coordinates,
    RankGrid,
    grid_of,
    nearest_divisor,
    parse_plan,
    parse_sizes,
    ran_all,
)
from .rank_trace import LocalParameter, RankTrace, is_causal, same_work
from .stages import stage_starts

__all__ = [
    "COLLECTIVES",
    "Collective",
    "CollectiveRate",
    "Coordinates",
    "Ledger",
    "LinkUse",
    "LocalParameter",
    "REPLICAS",
    "RankGrid",
    "RankTrace",
    "RankWork",
    "Recording",
    "SCHEDULES",
    "grid_of",
    "is_causal",
    "ledger_of",
    "link_uses",
    "nearest_divisor",
    "parse_plan",
    "parse_sizes",
    "ran_all",
    "same_work",
    "sent_share",
    "stage_starts",
]
