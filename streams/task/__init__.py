"""The task: one sub-topology on one partition, as a deterministic state machine with no I/O."""
