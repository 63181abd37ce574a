"""Which order of the operations needs the least memory?

Orders are of the operations of a traced step. That a framework would run them in this order is not claimed.
"""
