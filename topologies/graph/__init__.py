"""The topology as a value, its description, and the plans of its sub-topologies."""
