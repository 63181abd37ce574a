from .digests import hashed
from .errors import DeviceLost, Inconsistent, StoreFault, Unavailable, one_line
from .garbage_collector import collector_off
from .kernel import die_with_parent, free_bytes
from .library_words import depends_on_data, plain_words
from .limits import BoundedStream, beyond, check_regular, limit, stated, unpack
from .names import nearest
from .printable import LONGEST_TEXT, shortened
from .text_files import csv_lines, csv_rows, json_value, read_text, toml_tables
from .wrapping import least_width, letters, wrap

__all__ = [
    "LONGEST_TEXT",
    "BoundedStream",
    "DeviceLost",
    "Inconsistent",
    "StoreFault",
    "Unavailable",
    "beyond",
    "check_regular",
    "collector_off",
    "csv_lines",
    "csv_rows",
    "depends_on_data",
    "die_with_parent",
    "free_bytes",
    "hashed",
    "json_value",
    "least_width",
    "letters",
    "limit",
    "nearest",
    "one_line",
    "plain_words",
    "read_text",
    "shortened",
    "stated",
    "toml_tables",
    "unpack",
    "wrap",
]
