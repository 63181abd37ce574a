from .headline_table import headline_rows
from .table import to_csv, to_json, to_text
from .what_if import what_if_text

__all__ = [
    "headline_rows",
    "to_csv",
    "to_json",
    "to_text",
    "what_if_text",
]
