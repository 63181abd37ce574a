from .headline_table import headline_rows
from .link_table import links_text
from .parquet import NEEDED, can_write, to_parquet
from .table import to_csv, to_json, to_text

__all__ = [
    "NEEDED",
    "can_write",
    "headline_rows",
    "links_text",
    "to_csv",
    "to_json",
    "to_parquet",
    "to_text",
]
