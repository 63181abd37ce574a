"""What did torch.profiler, NVTX or Nsight record of a step?

Starts profilers and reads what they recorded in this process. Files of others are read by `measure.trace`.
"""
