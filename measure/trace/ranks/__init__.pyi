from .read_rank import TRACE_ENDINGS, rank_files, read_rank

__all__ = ["TRACE_ENDINGS", "rank_files", "read_rank"]
