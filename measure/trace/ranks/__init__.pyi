from .recordings import rank_files, read_rank, read_ranks

__all__ = ["rank_files", "read_rank", "read_ranks"]
