"""Ready-made topologies, each short enough to read as an example. To run one: ``penstock worker
penstock.topologies.examples.word_count:build``."""
