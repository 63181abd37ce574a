"""What does one rank of a parallel training step run?

Recorded on a fake process group and fake tensors, without memory, device or another process; or run for real, as one of
the processes of `torchrun`. No time is taken here: what is recorded says nothing of whether communication is hidden.
"""
