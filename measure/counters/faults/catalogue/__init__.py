"""Which faults does each counter have, and are they still there?"""
