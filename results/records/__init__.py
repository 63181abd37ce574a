"""Defines one frozen dataclass for each kind of observation.

The header of every CSV file is the field names of its record, in order; no header is typed anywhere else. Column names
carry the SI unit. `None` is unknown and is written as an empty field; it is never zero. How values become text is in
`rows.py`. Nothing here opens a file: `results/store/store.py` writes them and `results/store/reading.py` reads them.
"""
