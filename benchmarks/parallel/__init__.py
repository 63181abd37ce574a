"""How long does it take to count many ranks of a large model?"""
