"""Stores: specs, the views that operators use, the in-memory backend, and the caches above a database."""
