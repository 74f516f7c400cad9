"""The command ``penstock`` and its sub-commands, each imported only when it is asked for."""
