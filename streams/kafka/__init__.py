"""Everything that touches confluent_kafka: consumer, producer, admin, embedded broker."""
