"""Training programs on real data, written to be read."""
