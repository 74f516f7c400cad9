"""What a worker reports: facts and measurements, and the adapters that turn them into log lines and metrics."""
