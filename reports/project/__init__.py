"""What will training take?"""
