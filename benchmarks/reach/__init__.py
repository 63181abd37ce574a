"""How the tables and factors of `runners.reach` are made: published steps are read and counted, and factors fitted."""
