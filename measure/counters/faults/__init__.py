"""Which faults does each counter have, and how is each seen?"""
