from .recordings import rank_files, read_rank

__all__ = ["rank_files", "read_rank"]
