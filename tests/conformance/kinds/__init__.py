"""One module per kind of case. Those that play a topology have ``scenario(case, setting) -> Scenario`` and
``verdict(case, played) -> list[str]``: what is wrong, as lines; the others ``judge(case) -> list[str]``."""
