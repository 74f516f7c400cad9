"""Everything that touches PySpark: replay, compact, verify."""
