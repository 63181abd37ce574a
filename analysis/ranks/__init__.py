"""Where does the time of a step on many ranks go, and who waits for whom?

Over recordings of one rank each: `Timeline`. Not claimed: anything of ranks that were not recorded, or of traffic that
no profiler names.
"""
