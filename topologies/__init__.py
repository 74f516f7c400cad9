"""The computation: the graph as a value, its operators, and ready-made pipelines. Imports ``penstock.state`` only."""
