from .answers import READ, RUN, Answer, account, frameworks
from .architecture import Architecture, architectures, configuration
from .parts import CONVENTIONS, forward, training_flop
from .readings import reading
from .rules import CAUSES, RULES

__all__ = [
    "Answer",
    "Architecture",
    "CAUSES",
    "CONVENTIONS",
    "READ",
    "RULES",
    "RUN",
    "account",
    "architectures",
    "configuration",
    "forward",
    "frameworks",
    "reading",
    "training_flop",
]
