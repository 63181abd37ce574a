"""How is a task done in a process of its own?

Starts, watches and ends processes. It does not know what their tasks measure.
"""
