"""What can be asked of a formula?

Works on any formula in the project's symbols. It does not know models.
"""
