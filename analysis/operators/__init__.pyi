from .cost import ZERO, Cost, Size
from .operands import Sizes, attribute, first, has, needed, numel, output, output_mask, shape
from .products import attention_backward_executed, multiply_adds, scalars
from .registry import KINDS, PRODUCTS, TABLE, Rule, Rules, add_rule, bucket_of, kind_of, not_understood, rule_of, total
from .traffic import UNSIZED, Form, Piece, bytes_moved, itemsize, lacks_sizes, nothing, reads, writes

__all__ = [
    "Cost",
    "Form",
    "KINDS",
    "PRODUCTS",
    "Piece",
    "Rule",
    "Rules",
    "Size",
    "Sizes",
    "TABLE",
    "UNSIZED",
    "ZERO",
    "add_rule",
    "attention_backward_executed",
    "attribute",
    "bucket_of",
    "bytes_moved",
    "first",
    "has",
    "itemsize",
    "lacks_sizes",
    "kind_of",
    "multiply_adds",
    "needed",
    "not_understood",
    "nothing",
    "numel",
    "output",
    "output_mask",
    "reads",
    "rule_of",
    "scalars",
    "shape",
    "total",
    "writes",
]
