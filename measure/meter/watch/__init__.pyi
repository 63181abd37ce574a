from .watches import Watches

__all__ = ["Watches"]
