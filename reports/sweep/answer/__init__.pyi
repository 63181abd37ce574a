from .table import to_csv, to_json, to_text
from .what_if import what_if_text

__all__ = [
    "to_csv",
    "to_json",
    "to_text",
    "what_if_text",
]
