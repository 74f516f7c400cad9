"""The worker process: threads, clocks, files, settings, supervision."""
