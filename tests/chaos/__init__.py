"""Real brokers behind a proxy, real workers, faults, and an oracle that does not know the engine: ``make chaos``."""
