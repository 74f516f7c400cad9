"""How it runs: tasks, commits, workers, and the adapters to Kafka, Spark and Faust."""
