from .comparison import DIFFERENT, EQUAL, UNEXPLAINED, InstructionComparison, compare

__all__ = ["DIFFERENT", "EQUAL", "UNEXPLAINED", "InstructionComparison", "compare"]
