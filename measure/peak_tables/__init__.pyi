from .asking import ask
from .questions import AskedDevice
from .sources import ABSENT, TABLES

__all__ = ["ABSENT", "AskedDevice", "TABLES", "ask"]
