"""Building blocks of operators: row operators, row functions, timers, buffers."""
