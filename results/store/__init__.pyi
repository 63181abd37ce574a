from .columns import read_records, read_rows
from .layout import CEILINGS, QUICK, Key, compress, key_of, profile_file, recording_file
from .manifest import MANIFEST, Manifest, comparable, driver_branch, harness_version, read_manifest, utc_now
from .reading import RunData, read_operation_table, read_run
from .store import Store, check_vacant, read_operations, read_profile
from .tables import table

__all__ = [
    "CEILINGS",
    "Key",
    "MANIFEST",
    "Manifest",
    "QUICK",
    "RunData",
    "Store",
    "check_vacant",
    "comparable",
    "compress",
    "driver_branch",
    "harness_version",
    "key_of",
    "profile_file",
    "read_manifest",
    "read_operation_table",
    "read_operations",
    "read_profile",
    "read_records",
    "read_rows",
    "read_run",
    "recording_file",
    "table",
    "utc_now",
]
