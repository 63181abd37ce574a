"""What does each FLOP counter say, how is it run, and which faults does it have?

Third-party counters run unmodified, each in a process of its own.
"""
