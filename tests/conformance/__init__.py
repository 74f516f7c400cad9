"""Conformance: files of cases (inputs and expected outputs, taken from other systems' own tests) through real topologies.

A developer's tool: it evaluates the functions that a file names as Python, so it must be given trusted files only.
``cases`` reads them, ``kinds/`` plays each kind of case, ``compare`` judges, ``suite`` puts it together.
"""
