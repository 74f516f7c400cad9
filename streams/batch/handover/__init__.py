"""Work of an application that an engine takes over and hands back, as far as the engine does not matter."""
