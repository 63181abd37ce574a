"""What does a step cost, as a formula in its sizes?"""
