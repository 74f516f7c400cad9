"""The topology as a value, its description, and how a sub-topology is planned."""
