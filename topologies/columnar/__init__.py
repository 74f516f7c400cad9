"""Work on whole columns: kernels, JSON columns, encoded columns."""
