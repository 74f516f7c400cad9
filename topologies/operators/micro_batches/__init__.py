"""Micro-batches, as DStreams have them."""
