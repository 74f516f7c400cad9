"""Ready-made topologies, each short enough to be read as an example. Run one, for instance, by
``penstock worker penstock.topologies.examples.word_count:build``."""
