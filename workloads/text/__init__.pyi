from .families import Family, family_workload
from .gpt import GPT
from .tokens import IGNORED, draw, log_expected, log_uniform, next_tokens, token_loss
from .transformer import attend, small_weights

__all__ = [
    "Family",
    "GPT",
    "IGNORED",
    "attend",
    "draw",
    "family_workload",
    "log_expected",
    "log_uniform",
    "next_tokens",
    "small_weights",
    "token_loss",
]
