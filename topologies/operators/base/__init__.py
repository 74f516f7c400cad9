"""What operators are built from: row operators, row functions, timers, buffers."""
