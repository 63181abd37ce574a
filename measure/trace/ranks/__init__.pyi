from .kineto_rank import rank_files, read_rank

__all__ = ["rank_files", "read_rank"]
