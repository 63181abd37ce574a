"""What does a step cost, as a formula in its sizes?

A formula is interpolated and then checked at further points. It holds between sizes at which the operations stay the
same.
"""
