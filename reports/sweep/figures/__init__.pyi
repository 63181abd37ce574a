from .gallery import UTILIZATION

__all__ = [
    "UTILIZATION",
]
