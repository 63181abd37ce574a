from .accelerator import Accelerator, SubBatches
from .collectives import Group, all_reduce_s
from .data_parallel import epoch_s
from .domain import Domain
from .first_order import FirstOrderFit, asymptote
from .frontier import DAY_S, ProjectionRange, batches, cost_of, grown_for
from .shipped_formulas import Formulas, shipped

__all__ = [
    "Accelerator",
    "DAY_S",
    "Domain",
    "FirstOrderFit",
    "Formulas",
    "Group",
    "ProjectionRange",
    "SubBatches",
    "all_reduce_s",
    "asymptote",
    "batches",
    "cost_of",
    "epoch_s",
    "grown_for",
    "shipped",
]
