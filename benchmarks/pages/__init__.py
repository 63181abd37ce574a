"""What makes generated documents, and tables that are shipped: each takes --write FILE."""
