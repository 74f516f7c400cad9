"""Operators over the columns of a batch: the same answers as their row forms, which they leave a batch to when in doubt."""
