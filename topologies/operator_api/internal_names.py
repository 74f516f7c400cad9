"""How the names of an application's own topics end.

One list for who makes them (``penstock.topologies.dsl``) and for who looks for topics that no topology reads any more
(``penstock.streams.runtime.unread_internal_topics``).
"""

from __future__ import annotations

from typing import Final

REPARTITION: Final = "-repartition"
REGISTRATION: Final = "-subscription-registration-topic"
"""A foreign-key join's questions; the name is Kafka Streams'."""
RESPONSE: Final = "-subscription-response-topic"
"""A foreign-key join's answers; the name is Kafka Streams'."""

INTERNAL_SUFFIXES: Final = (REPARTITION, REGISTRATION, RESPONSE)
