"""Where an executor keeps what it needs only while it works."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping

_GIVEN = (("LOCAL_DIRS", ","), ("SPARK_EXECUTOR_DIRS", os.pathsep), ("SPARK_LOCAL_DIRS", ","))
"""How YARN, a standalone cluster and Kubernetes name an executor's own folders, and what separates them."""


def use_local_dirs(env: Mapping[str, str] = os.environ) -> None:
    """Make temporary folders of this process where Spark has its own. The cluster manager removes those with the
    application, so that stores of an executor that was killed do not stay on its machine."""
    for name, separator in _GIVEN:
        for folder in env.get(name, "").split(separator):
            if os.path.isdir(folder):
                tempfile.tempdir = folder
                return
