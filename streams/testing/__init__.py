"""The in-memory log that stands for Kafka in simulations, and the test driver for topologies."""
