from .base import Batch, Workload
from .catalogue import ENTRIES, IMAGES, OPTIMIZERS, OWN, SUITES, entry, factory, hyper_of, reason_not_trainable
from .entries import Entry
from .fathom_sizes import AS_CODED, AS_PAPER, SMALL, large
from .input_shapes import Shape, parse_shapes
from .model_files import model_digest
from .model_names import CODE, Spec, check, nearest, parse, read_config, require

__all__ = [
    "AS_CODED",
    "AS_PAPER",
    "Batch",
    "CODE",
    "ENTRIES",
    "Entry",
    "IMAGES",
    "OPTIMIZERS",
    "OWN",
    "SMALL",
    "SUITES",
    "Shape",
    "Spec",
    "Workload",
    "check",
    "entry",
    "factory",
    "hyper_of",
    "large",
    "model_digest",
    "nearest",
    "parse",
    "parse_shapes",
    "read_config",
    "reason_not_trainable",
    "require",
]
