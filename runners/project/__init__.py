"""What will training take, on which machine?"""
