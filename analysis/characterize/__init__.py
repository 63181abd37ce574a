"""How do workloads differ?"""
