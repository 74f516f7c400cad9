"""The compiled part. Every function has a twin in Python that gives the same answers."""

INTERFACE: int
"""Changes with every change of a signature; whoever uses the module compares it."""
