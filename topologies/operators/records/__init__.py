"""Sources, sinks, and operators on single records."""
