"""Where are the cells of a sweep measured: here, or on the nodes of a Ray cluster?

Ray decides which device a slot gets, and when; this package only hands cells to slots that are there, and keeps their
rows. It does not know how a cell is measured (`runners.sweep.session`).
"""
