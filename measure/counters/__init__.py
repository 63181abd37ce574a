"""What does each FLOP counter say, and how is it run?

Third-party counters run unmodified, each in a process of its own.
"""
