from .asymptotics import derivative, elasticity, leading, limit
from .constraints import amount, request
from .evaluate import compiled, rows, value
from .expressions import Expr, names, parse, plain, rational, symbol, unknown_name
from .format import pretty
from .length_cost import CostDistribution, Padded, padded, spread
from .length_distribution import Lengths, named, read
from .parameter_grid import MOST_POINTS, as_csv, axes, parse_point, points
from .simplify import shortest
from .solve import NoSolution, Solution

__all__ = [
    "CostDistribution",
    "Expr",
    "Lengths",
    "MOST_POINTS",
    "NoSolution",
    "Padded",
    "Solution",
    "amount",
    "as_csv",
    "axes",
    "compiled",
    "derivative",
    "elasticity",
    "leading",
    "limit",
    "named",
    "names",
    "padded",
    "parse",
    "parse_point",
    "plain",
    "points",
    "pretty",
    "rational",
    "read",
    "request",
    "rows",
    "shortest",
    "spread",
    "symbol",
    "unknown_name",
    "value",
]
