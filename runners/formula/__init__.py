"""What does this model cost, as a formula?"""
