"""Serdes: values and keys to the bytes of the log and back, and the partitioner that reads those bytes."""
