"""Which faults does each counter have, and how is each seen?

Known faults with reproductions. The list is not complete.
"""
