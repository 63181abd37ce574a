from .accelerator import Accelerator, SubBatches
from .data_parallel import epoch_s
from .domain import Domain
from .first_order import FirstOrderFit, asymptote
from .frontier import DAY_S, ProjectionRange, batches, cost_of, grown_for
from .monte_carlo import APART, Numbers, Steps, domain_inputs, with_values
from .prices import running_costs
from .shipped_formulas import Formulas, shipped

__all__ = [
    "APART",
    "Accelerator",
    "DAY_S",
    "Domain",
    "FirstOrderFit",
    "Formulas",
    "Numbers",
    "ProjectionRange",
    "Steps",
    "SubBatches",
    "asymptote",
    "batches",
    "cost_of",
    "domain_inputs",
    "epoch_s",
    "grown_for",
    "running_costs",
    "shipped",
    "with_values",
]
