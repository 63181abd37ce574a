"""What will training take, on which machine, and what does a budget buy?"""
