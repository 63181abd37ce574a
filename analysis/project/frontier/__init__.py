"""What does training to a target take, and on which machine?"""
