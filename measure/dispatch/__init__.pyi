from .schemas import Description, Plan, clear_cache, plan_of, sparse, sparse_name, tensors_in
from .sizes import fixed_symbols, plain

__all__ = [
    "Description",
    "Plan",
    "clear_cache",
    "fixed_symbols",
    "plain",
    "plan_of",
    "sparse",
    "sparse_name",
    "tensors_in",
]
