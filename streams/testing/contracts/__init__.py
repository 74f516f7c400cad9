"""The contracts of the ports, as suites of tests: subclass one in a module of tests of your own, and run it with pytest.
Penstock's own backends, logs and repositories run the very same suites."""
