"""Operators on the changes of tables."""
