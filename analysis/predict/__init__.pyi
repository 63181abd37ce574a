from .amount_table import AMOUNTS, StepKey, kept_amounts, packed
from .operation_amounts import COMPILED, EAGER, Amounts, StepAmounts, amounts
from .prediction import MEASURED, Prediction, is_power_limited, predict
from .step_time import FACTORS, Machine, Part, Setting, TimeModel, fitted, parts_of

__all__ = [
    "AMOUNTS",
    "Amounts",
    "COMPILED",
    "EAGER",
    "FACTORS",
    "MEASURED",
    "Machine",
    "Part",
    "Prediction",
    "Setting",
    "StepAmounts",
    "StepKey",
    "TimeModel",
    "amounts",
    "fitted",
    "is_power_limited",
    "kept_amounts",
    "packed",
    "parts_of",
    "predict",
]
