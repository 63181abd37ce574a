"""How is the answer of `runners.reach` shown? As text, as one row and as a document.

Not claimed: anything beyond the answer; nothing is calculated here but ratios of its numbers.
"""
