"""What mkdocs calls while it builds the site: pages of the repository become pages of the site, and pictures are drawn."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))

from pictures import PICTURES  # the folder is on the path only now

ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "readme.md",
    "LANGUAGE.md": "language.md",
    "OPERATING.md": "operating.md",
    "DEPARTURES.md": "departures.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "docker/README.md": "docker.md",
    "deploy/README.md": "deploy.md",
}
"""By file of the repository: its page."""
_SHIM = "https://unpkg.com/iframe-worker/shim"
_LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\(([^)\s]+)\)")
_PICTURE = re.compile(r"^\{\{ picture ([\w-]+) \}\}$", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the repository."""
    for source, page in PAGES.items():
        path = ROOT / source
        if path.exists():
            files.append(File.generated(config, page, content=linked(path.read_text(), source)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Draw the pictures."""
    return _PICTURE.sub(lambda found: f'<div class="picture-frame">{PICTURES[found[1]]()}</div>', markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Take the script that makes the search work from a disk from the site: the theme would fetch it from the web."""
    return output.replace(_SHIM, f"{'../' * page.url.count('/')}assets/iframe-worker.js")


def on_post_template(output: str, **_: Any) -> str | None:
    """The same in the page for what is not found."""
    return output.replace(_SHIM, "assets/iframe-worker.js")


def linked(markdown: str, source: str) -> str:
    """The text with its links to pages of the site; what the site does not have is named without a link."""

    def link(found: re.Match[str]) -> str:
        said, target = found.groups()
        path, hash_, anchor = target.partition("#")
        if "://" in target or not path:
            return found[0]
        place = (ROOT / source).parent.joinpath(path).resolve()
        page = PAGES.get(str(place.relative_to(ROOT))) if place.is_relative_to(ROOT) else None
        return said if page is None else f"[{said}]({page}{hash_}{anchor})"

    return _LINK.sub(link, markdown)
