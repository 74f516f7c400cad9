"""The operator that runs patterns."""
