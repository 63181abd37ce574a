from .json_events import events, to_ns
from .nsys_tables import Tables

__all__ = ["Tables", "events", "to_ns"]
