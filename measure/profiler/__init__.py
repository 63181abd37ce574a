"""What did torch.profiler, NVTX or Nsight record of a step?"""
