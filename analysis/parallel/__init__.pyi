from .collective_rates import COLLECTIVES, CollectiveRate, sent_share
from .ledger import Collective, Ledger, RankWork, Recording, ledger_of
from .rank_grid import REPLICAS, SCHEDULES, Coordinates, RankGrid, grid_of, parse_plan, parse_sizes
from .rank_trace import LocalParameter, RankTrace, same_work

__all__ = [
    "COLLECTIVES",
    "Collective",
    "CollectiveRate",
    "Coordinates",
    "Ledger",
    "LocalParameter",
    "REPLICAS",
    "RankGrid",
    "RankTrace",
    "RankWork",
    "Recording",
    "SCHEDULES",
    "grid_of",
    "ledger_of",
    "parse_plan",
    "parse_sizes",
    "same_work",
    "sent_share",
]
