"""Everything that touches Faust: a topology inside a real faust-streaming worker.

``faust_app(topology, settings)`` gives a ``faust.App`` whose agents feed the same tasks as a Penstock worker's consumer.
At-least-once and at-most-once only; see ``penstock.streams.faust.app``.
"""

from penstock.streams.faust.app import faust_app

__all__ = ["faust_app"]
