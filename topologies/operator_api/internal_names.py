"""The suffixes of an application's internal topic names.

Shared by the DSL, which creates the names (``penstock.topologies.dsl``), and by the search for topics that no topology
reads any more (``penstock.streams.runtime.unread_internal_topics``).
"""

from __future__ import annotations

from typing import Final

REPARTITION: Final = "-repartition"
REGISTRATION: Final = "-subscription-registration-topic"
"""A foreign-key join's subscriptions, named as in Kafka Streams."""
RESPONSE: Final = "-subscription-response-topic"
"""A foreign-key join's responses, named as in Kafka Streams."""

INTERNAL_SUFFIXES: Final = (REPARTITION, REGISTRATION, RESPONSE)
