"""What does a model cost, as a formula?"""
