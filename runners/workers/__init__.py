"""How is a task done in a process of its own?"""
