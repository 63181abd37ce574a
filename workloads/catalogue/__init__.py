"""Lists the workloads by name, with facts that are known before anything is built.

Only `base.py`, which defines what a workload is, imports torch.
"""
