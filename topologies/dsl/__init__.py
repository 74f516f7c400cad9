"""The DSL: handles on streams and tables, whose methods add operators to a graph.

``builder`` is the entry point. Each handle is one class in the file of its name (``kstream``, ``ktable``,
``kgrouped_stream``, ``windowed_stream`` …); its docstrings are the contracts. ``internals`` has the functions that add
the operators, one module per theme. ``wiring`` holds the graph under construction and the rules for names. ``typed``
turns expressions into row functions.
"""
