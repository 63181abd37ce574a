"""What does a recorded profile say, of one process or of many ranks? (`python -m runners.trace`)"""
