"""Patterns over the events of a key: what to look for (``pattern``), its automaton (``compiler``), and the matcher that
runs it (``matcher``) over partial matches, which are plain values (``state``). Pure; the semantics are FlinkCEP's."""
