"""The processor API and its timers."""
