from .bounds import rates, time_bound
from .branches import change, difference
from .derive import Derived, Uninterpolated
from .footprint import Piece
from .footprint_terms import peak_of
from .interpolate import Point, point_text, value_of
from .sampling import Axis, NoSample, Restructured, SizeSample, Unfitted, spread
from .symbolic_table import OWN, Convention, check
from .totals import FLOP, OF_ATTENTION, PART, QUANTITIES, SIZED, Expr, Term

__all__ = [
    "Axis",
    "Convention",
    "Derived",
    "Expr",
    "FLOP",
    "NoSample",
    "OF_ATTENTION",
    "OWN",
    "PART",
    "Piece",
    "Point",
    "QUANTITIES",
    "Restructured",
    "SIZED",
    "SizeSample",
    "Term",
    "Unfitted",
    "Uninterpolated",
    "change",
    "check",
    "difference",
    "peak_of",
    "point_text",
    "rates",
    "spread",
    "time_bound",
    "value_of",
]
