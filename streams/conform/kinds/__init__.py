"""One module per kind of case. Each has ``judge(case, play) -> list[str]``: what is wrong, as lines."""
