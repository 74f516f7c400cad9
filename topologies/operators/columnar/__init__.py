"""Operators over the columns of a batch: same results as the row path, which takes over batches that they cannot
handle."""
