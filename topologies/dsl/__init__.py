"""The DSL: handles on streams and tables, whose methods add operators to a graph.

``builder`` is the entry. Each handle is one class in the file of its name (``kstream``, ``ktable``, ``kgrouped_stream``,
``windowed_stream`` …), whose docstrings are the contracts; ``internals`` has the functions that add the operators, one
module a theme. ``wiring`` holds the graph under construction and the rules for names; ``typed`` makes row functions of
expressions.
"""
