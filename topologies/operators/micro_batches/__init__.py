"""Micro-batches, as in DStreams."""
