from .any_model import FACTORY, FAST, LARGEST_REAL, TRAINER, get
from .batches import FEW_BATCHES, MORE_BATCHES, SMALL_BATCH_BYTES, Batches, in_layout
from .cell_sizes import hyper_of_cell
from .devices import BUSY_LOAD_RATIO, check_name
from .fault import WorkerFault
from .place import Place, place_of
from .pool import Stopwatch, Worker, prepare, uninterrupted
from .probe import ProbeResult
from .telemetry import TelemetryWatch, WindowEnergy
from .worker import classify

__all__ = [
    "BUSY_LOAD_RATIO",
    "Batches",
    "FACTORY",
    "FAST",
    "FEW_BATCHES",
    "WorkerFault",
    "LARGEST_REAL",
    "MORE_BATCHES",
    "Place",
    "ProbeResult",
    "SMALL_BATCH_BYTES",
    "Stopwatch",
    "TRAINER",
    "TelemetryWatch",
    "WindowEnergy",
    "Worker",
    "check_name",
    "classify",
    "get",
    "hyper_of_cell",
    "in_layout",
    "place_of",
    "prepare",
    "uninterrupted",
]
