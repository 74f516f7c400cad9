"""The Nexmark benchmark: an auction house as a stream of persons, auctions and bids, and queries 0 to 22 on it.

``generator`` makes the stream, ``model`` has its schema, ``streams`` reads it, and the other modules hold the queries
by subject. Each query is a function that returns a topology, which reads the topic ``nexmark`` and writes the topic
of its own name. Its arguments are the benchmark's constants; ``constants`` has those of nexmark/nexmark, the
defaults, and Beam's:

    penstock worker penstock.topologies.examples.nexmark.windows:q5

Queries mean what the Flink SQL of nexmark/nexmark means; times are UTC. Queries that keep every person, auction or
pair forever (3, 18, 19, and the aggregates of 4, 6 and 9 per auction or seller) do so there too.
"""
