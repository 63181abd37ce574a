from .answers import READ, RUN, Answer, account, frameworks
from .architecture import Architecture, architectures, configuration
from .encoder_decoder import target
from .forms import backward_flop, forward_parts, matrices, training_flop
from .network import Model, NetworkSizes, configurations, decode, encode, network_configuration, networks
from .network_rules import causes_of
from .own_configuration import own_architecture
from .parts import CONVENTIONS, ENCODERS, forward
from .readings import reading
from .rules import CAUSES, GELU_GATES, RULES
from .state_space import pattern_of

__all__ = [
    "Answer",
    "Architecture",
    "CAUSES",
    "CONVENTIONS",
    "ENCODERS",
    "GELU_GATES",
    "Model",
    "NetworkSizes",
    "READ",
    "RULES",
    "RUN",
    "account",
    "architectures",
    "backward_flop",
    "causes_of",
    "configuration",
    "configurations",
    "decode",
    "encode",
    "forward",
    "forward_parts",
    "frameworks",
    "matrices",
    "network_configuration",
    "networks",
    "own_architecture",
    "pattern_of",
    "reading",
    "target",
    "training_flop",
]
