"""What does the recording of one rank hold of computing, copying and communicating?

Not claimed: whose fault a wait is; `analysis.ranks` compares ranks.
"""
