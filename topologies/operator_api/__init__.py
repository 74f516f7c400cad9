"""The interface for operators: batches, columns, edges, watermarks."""
