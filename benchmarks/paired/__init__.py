"""Steps timed together with ceiling kernels, and cells of a sweep, beside planted neighbours."""
