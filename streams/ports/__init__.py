"""The ports to the log: consumer, producer and admin as protocols, and their errors. Pure."""
