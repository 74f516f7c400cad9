"""The command ``penstock``: thin wrappers around the library, one module per command."""
