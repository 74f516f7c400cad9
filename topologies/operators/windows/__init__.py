"""Aggregations over windows, and windows with triggers."""
