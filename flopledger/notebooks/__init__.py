"""Shared by the notebooks: an installer for their first cell, and sizes that tests can reduce."""
