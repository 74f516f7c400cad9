"""Expressions: what to compute from a row, as a value that can be typed, printed, run row by row, and compiled to
columns.

``functions`` has what users write (``col("amount") > 3``), ``tree`` the nodes, ``types`` the types, ``inference`` checks a
tree against declared schemas, ``rows`` is the row interpreter, which is the reference for every other way to run a tree.
"""
