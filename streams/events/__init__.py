"""A worker's reports: facts and measurements, and the adapters that turn them into log lines and metrics."""
