"""Steps timed together with ceiling kernels, beside planted neighbours."""
