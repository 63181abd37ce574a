"""Raw records → cleaned records and a log of every change."""
