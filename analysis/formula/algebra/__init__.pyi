from .constraints import amount, request
from .evaluate import compiled, rows, value
from .expressions import Expr, names, parse, plain, rational, symbol, unknown_name
from .format import pretty
from .parameter_grid import MOST_POINTS, as_csv, axes, parse_point, points
from .simplify import shortest
from .solve import NoSolution, Solution

__all__ = [
    "Expr",
    "MOST_POINTS",
    "NoSolution",
    "Solution",
    "amount",
    "as_csv",
    "axes",
    "compiled",
    "names",
    "parse",
    "parse_point",
    "plain",
    "points",
    "pretty",
    "rational",
    "request",
    "rows",
    "shortest",
    "symbol",
    "unknown_name",
    "value",
]
