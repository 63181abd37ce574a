"""What does one rank of a parallel training step run?

The step is recorded on a fake process group and fake tensors, without memory, device or another process; or it runs as
one of the processes of `torchrun`. No step is timed here: a recording does not show whether communication is hidden.
"""
