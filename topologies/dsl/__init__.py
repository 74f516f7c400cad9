"""The DSL: handles on streams and tables, whose methods add operators to a graph. ``builder`` is the entry; one file per
theme holds the methods of ``KStream`` and ``KTable``."""
