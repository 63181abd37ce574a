from .arguments import (
    CONVENTIONS,
    MARGIN_RATIO,
    SHOWN,
    Parser,
    add_format,
    choice_error,
    names,
    number,
    number_of_bytes,
    share,
    sizes,
)
from .exits import FAILED, GATE, INTERRUPTED, MISTAKE, TERMINATED, UNWRITABLE, Mistake, exit_code, guarded, instructed
from .graph_reading import check_files
from .model_options import LAYOUTS, MODEL, WORDS, add_model, check_models, hyper_of
from .output_files import attempt, put, remove_others, reserve, writing
from .progress import Progress, passing, title
from .recordings import MALFORMED, read_recording
from .terminal import Page, say, show_page

__all__ = [
    "CONVENTIONS",
    "FAILED",
    "GATE",
    "INTERRUPTED",
    "LAYOUTS",
    "MALFORMED",
    "MARGIN_RATIO",
    "MISTAKE",
    "MODEL",
    "Mistake",
    "Page",
    "Parser",
    "Progress",
    "SHOWN",
    "TERMINATED",
    "UNWRITABLE",
    "WORDS",
    "add_format",
    "add_model",
    "attempt",
    "check_files",
    "check_models",
    "choice_error",
    "exit_code",
    "guarded",
    "hyper_of",
    "instructed",
    "names",
    "number",
    "number_of_bytes",
    "passing",
    "put",
    "read_recording",
    "remove_others",
    "reserve",
    "share",
    "say",
    "show_page",
    "sizes",
    "title",
    "writing",
]
