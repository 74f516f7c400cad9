"""The demo: two pipelines on real Kafka and Spark, a worker killed halfway, and every answer held to a count of its own."""
