"""Ready sinks and sources: databases, files and services. Each module is the home of one system's client."""
