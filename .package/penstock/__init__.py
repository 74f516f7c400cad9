"""Penstock: log-based stream processing on Kafka, with Spark as its second engine.

``topologies/`` says what to compute, ``state/`` says what is remembered, ``streams/`` makes it run;
imports point one way: streams → topologies → state.
"""

__version__ = "0.1.0"
