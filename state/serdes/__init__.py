"""Serdes, which convert keys and values to the bytes of the log and back, and the partitioner."""
