"""What does a recorded profile say?

Shows one recording. A total with an unknown part is shown as a lower bound.
"""
