from .cells import LSTM, Cell, State

__all__ = [
    "Cell",
    "LSTM",
    "State",
]
