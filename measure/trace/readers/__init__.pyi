from .json_events import events, to_ns

__all__ = ["events", "to_ns"]
