"""What do the published runs say?"""
