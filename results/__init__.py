"""Records and how they are kept: the room below all others."""
