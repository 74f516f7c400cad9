"""Operators over the columns of a batch: same results as the row path, to which they leave a batch when in doubt."""
