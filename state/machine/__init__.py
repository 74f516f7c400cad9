"""The machine below the state: the state folder, atomic file writes, available memory."""
