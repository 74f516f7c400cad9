"""The exception tree. The class says who acts; the message says what was seen and what to do next.

    PenstockError
    ├── UserError             fix your code, settings or topics, then start again
    │   ├── TopologyError       the graph is wrong (found when it is built)
    │   ├── SettingsError       a setting is wrong or missing
    │   ├── SerdeError          bytes that a serde cannot read, or a value it cannot write
    │   ├── ProcessingError     a record that an operator could not process
    │   └── IncompatibleError   state, topics or snapshots belong to something else
    ├── EnvironmentFault      fix the machine: Java, ports, disk, network
    ├── RetriableError        nothing is lost; the same call may succeed later
    ├── StateCorruptedError   rebuild: the local state cannot be trusted and is quarantined and restored
    └── TaskMigratedError     rejoin: another worker owns the task now; discard and ask the group again

Foreign exceptions are translated in the adapters, with ``from``. Pure: imports nothing.
"""

from __future__ import annotations


class PenstockError(Exception):
    """Base of everything that Penstock raises on purpose."""


class UserError(PenstockError):
    """Something that only the user can fix: code, settings or topics."""


class TopologyError(UserError):
    """The topology is not valid. Raised when it is built, never while it runs."""


class SettingsError(UserError):
    """A setting is missing, unknown or out of its bounds."""


class SerdeError(UserError):
    """Bytes that a serde cannot read, or a value that it cannot write."""


class ProcessingError(UserError):
    """A record that could not be processed under the policy ``fail``.

    The message names topic, partition, offset, operator and cause; nothing past that record is committed.
    """


class IncompatibleError(UserError):
    """State, topics or a snapshot belong to another application, cluster or topology."""


class EnvironmentFault(PenstockError):
    """The machine lacks something: Java, a free port, disk space, network. The message has the command that fixes
    it."""


class RetriableError(PenstockError):
    """Nothing is lost and the same call may succeed later."""


class StateCorruptedError(PenstockError):
    """The local state cannot be verified: quarantine it, and rebuild it from snapshot and changelog."""


class TaskMigratedError(PenstockError):
    """Another worker owns the task now: discard uncommitted work and join the group again."""
