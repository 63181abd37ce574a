from .table import to_csv, to_json, to_text

__all__ = [
    "to_csv",
    "to_json",
    "to_text",
]
