"""Penstock beside its peers: the same log, the same questions, every answer checked. ``python -m benchmarks`` runs it.

Nothing here is part of the package; ``benchmarks/README.md`` says what is measured and how.
"""
