"""Part of the build of a wheel (hatchling calls it): the compiled part goes in, where there is one.

``NATIVE_WHEEL`` names a wheel that maturin has built of ``native/``. Then the result is for that wheel's platform;
else it is for every platform, and works without the compiled part.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.utils import parse_wheel_filename

ENV = "NATIVE_WHEEL"


class CompiledPart(BuildHookInterface[Any]):
    """Puts ``penstock_native`` beside ``penstock``."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the module, and take the tag of its wheel."""
        self._folder = ""
        if version == "editable" or not (named := os.environ.get(ENV)):
            return
        wheel = Path(named)
        _, built, _, _ = parse_wheel_filename(wheel.name)
        if str(built) != self.metadata.version:
            raise ValueError(f"{ENV}: {wheel.name} is not of version {self.metadata.version}; build native/ again")
        self._folder = tempfile.mkdtemp()
        with zipfile.ZipFile(wheel) as archive:
            (module,) = (name for name in archive.namelist() if name.endswith(".abi3.so"))
            path = archive.extract(module, self._folder)
        build_data["force_include"][path] = "penstock_native.abi3.so"
        build_data["force_include"][str(Path(self.root, "native", "penstock_native.pyi"))] = "penstock_native.pyi"
        build_data["pure_python"] = False
        build_data["tag"] = "-".join(wheel.stem.split("-")[2:])

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was unpacked."""
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
