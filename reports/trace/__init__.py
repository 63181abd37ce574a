"""What does a recorded profile say?"""
