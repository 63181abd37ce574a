"""Models of text and speech written here."""
