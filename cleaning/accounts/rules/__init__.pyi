from .flop_counter_mode import ATTENTION_BACKWARD, attention_backward

__all__ = [
    "ATTENTION_BACKWARD",
    "attention_backward",
]
