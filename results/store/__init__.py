"""How rows are kept and read: append-only, committed, checked"""
