from .budget import BudgetAnswer, DevicePlan
from .figures import of_domain, paper_pictures
from .gpu_hours import GpuHoursAnswer
from .monte_carlo import DrawnAnswers, runs_of
from .paper_page import page
from .parallelism import ParallelismAnswer
from .shared import ReachedUtilization, quantity
from .swept import swept_text
from .text import ProjectionAnswer
from .tornado_figure import tornadoes

__all__ = [
    "BudgetAnswer",
    "DevicePlan",
    "DrawnAnswers",
    "GpuHoursAnswer",
    "ParallelismAnswer",
    "ProjectionAnswer",
    "ReachedUtilization",
    "of_domain",
    "page",
    "paper_pictures",
    "quantity",
    "runs_of",
    "swept_text",
    "tornadoes",
]
