"""An application as a query of Spark Structured Streaming, next to or instead of workers."""
