from .causes import CAUSES, CONVENTION, PRODUCT
from .data_flow import DataFlow, used
from .items import (
    FUSED_NOT_SEEN,
    Counted,
    Item,
    Native,
    bound,
    exact_flop,
    first_tensor,
    in_and_out,
    in_phase,
    is_complex,
    missed_by,
    of_operation,
    other,
    product,
    real_flop,
)
from .module_hooks import NN, fault_of_convolution, missed, nn
from .patched_functions import printed_flop

__all__ = [
    "CAUSES",
    "CONVENTION",
    "Counted",
    "DataFlow",
    "FUSED_NOT_SEEN",
    "Item",
    "NN",
    "Native",
    "PRODUCT",
    "bound",
    "exact_flop",
    "fault_of_convolution",
    "first_tensor",
    "in_and_out",
    "in_phase",
    "is_complex",
    "missed",
    "missed_by",
    "nn",
    "of_operation",
    "other",
    "printed_flop",
    "product",
    "real_flop",
    "used",
]
