"""What did a recording count of each kernel, once and without gaps?"""
