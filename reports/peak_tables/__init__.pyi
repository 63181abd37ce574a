from .answers import PackageAnswers, read_answers, write_answers
from .markdown import markdown_page
from .rows import ABSENT, audit_rows, tally

__all__ = [
    "ABSENT",
    "PackageAnswers",
    "audit_rows",
    "markdown_page",
    "read_answers",
    "tally",
    "write_answers",
]
