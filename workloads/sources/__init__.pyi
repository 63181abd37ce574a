from .any_model import get
from .file_inputs import UNKNOWN_BELOW, GraphInput, identifier
from .files import Graph

__all__ = [
    "Graph",
    "GraphInput",
    "UNKNOWN_BELOW",
    "get",
    "identifier",
]
