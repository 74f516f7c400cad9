"""What a worker reports: facts and measurements, and the adapters that make log lines and metrics of them."""
