"""A page about one Spark job."""
