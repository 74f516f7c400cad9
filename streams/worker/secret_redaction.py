"""Keeps secrets out of everything that may be printed."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "[hidden]"
_SECRET = re.compile(
    r"password|passphrase|secret|token|oauthbearer|jaas|ssl[._]key|ssl[._]certificate[._]pem|keystore|credential|api[._]key",
    re.IGNORECASE,
)
_USERINFO = re.compile(r"(?<=://)[^/@\s]+(?=@)")


_SECURITY = re.compile(r"(sasl|ssl)[._]", re.IGNORECASE)
_OPEN = frozenset(
    {
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.kerberos.service.name",
        "sasl.kerberos.principal",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.cipher.suites",
        "ssl.endpoint.identification.algorithm",
    }
)
"""Settings of these families that hold no secret. Any other may, a misspelt one too: only later does the client say that it
knows no such key."""


def is_secret(name: str) -> bool:
    """Whether a setting of this name may hold a secret. In doubt, yes."""
    return bool(_SECRET.search(name)) or (bool(_SECURITY.match(name)) and name.lower() not in _OPEN)


def redacted(value: Any) -> Any:
    """The value for printing: secrets by name in mappings and dataclasses, and user names and passwords in URLs, are
    replaced."""
    if isinstance(value, Mapping):
        return {k: HIDDEN if is_secret(str(k)) else redacted(v) for k, v in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: HIDDEN if is_secret(f.name) else redacted(getattr(value, f.name)) for f in dataclasses.fields(value)
        }
    if isinstance(value, str):
        return _USERINFO.sub(HIDDEN, value)
    if isinstance(value, (list, tuple)):
        return [redacted(v) for v in value]
    return value
