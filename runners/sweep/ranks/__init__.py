"""What utilization does training reach here, on several devices at once?

Under `torchrun` each process is a rank of one sweep: the first one plans, counts and keeps the run, the others train
with it. Not claimed: recovery of a rank that is gone; its cell is a row with the reason, and the sweep ends or goes on.
"""
