"""What the notebooks share: an installer for their first cell, and sizes that tests make small."""
