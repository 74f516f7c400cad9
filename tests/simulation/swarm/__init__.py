"""Seeded runs of whole applications under faults that each seed draws: ``python -m tests.simulation.swarm``."""
