"""Work of an application that Spark takes over and hands back: catching up, and bootstrapping."""
