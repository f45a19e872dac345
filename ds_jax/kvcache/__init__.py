"""Pages of cached rows and who may use them again, on the host."""
