"""What can be asked of a formula?"""
