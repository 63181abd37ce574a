from .figures import of_domain, paper_pictures
from .gpu_hours import GpuHoursAnswer
from .shared import ReachedUtilization
from .text import DrawnAnswers, ProjectionAnswer

__all__ = [
    "DrawnAnswers",
    "GpuHoursAnswer",
    "ProjectionAnswer",
    "ReachedUtilization",
    "of_domain",
    "paper_pictures",
]
