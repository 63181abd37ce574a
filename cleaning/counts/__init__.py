"""What do counters say in one convention, and where do they disagree?

Brings numbers to one convention and logs each change. It does not decide which counter is right.
"""
