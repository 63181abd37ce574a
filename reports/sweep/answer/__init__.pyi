from .headline_rows import headline_rows
from .table import to_csv, to_json, to_text

__all__ = [
    "headline_rows",
    "to_csv",
    "to_json",
    "to_text",
]
