"""The run loop of a worker: commits, assignment, preparation. No I/O except through ports."""
