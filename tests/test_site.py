"""The documents site: its code is run, and it is built as ``make docs`` builds it, without a warning and without the web."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import penstock as ps

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "pages"
FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def pages() -> list[str]:
    """The pages that were written for the site."""
    return sorted(str(path.relative_to(PAGES)) for path in PAGES.rglob("*.md"))


def code_of(page: str, language: str) -> list[str]:
    """The fenced blocks of a language, those in tabs too."""
    found = FENCE.findall((PAGES / page).read_text())
    return [textwrap.dedent(code) for _, name, code in found if name == language]


WITH_CODE = [page for page in pages() if code_of(page, "python")]


@pytest.mark.parametrize("page", WITH_CODE)
def test_code_runs_in_the_order_of_the_page(page: str) -> None:
    names: dict[str, Any] = {"__name__": "__docs__"}
    for number, code in enumerate(code_of(page, "python")):
        exec(compile(code, f"{page}, block {number}", "exec", dont_inherit=True), names)
    text = "\n".join(code_of(page, "python"))
    assert "assert " in text, "a page shows what its code answers"


def test_pages_with_code_are_those_that_have_some() -> None:
    assert {"index.md", "tutorial.md", "concepts.md"} < set(WITH_CODE)
    assert {page for page in pages() if page.startswith("moving/")} < set(WITH_CODE)


def test_project_of_the_tutorial_is_the_one_that_new_makes() -> None:
    from penstock.streams.cli.new import FILES

    made = FILES["{name}.py"].format(name="shop", version="0")
    assert code_of("tutorial.md", "python")[0].splitlines()[2:] == made.splitlines()[4:]


def test_names_that_pages_use_are_public() -> None:
    for page in pages():
        text = (PAGES / page).read_text()
        unknown = {name for name in re.findall(r"\bps\.(\w+)", text) if not hasattr(ps, name)}
        assert unknown == set(), f"{page}: penstock has no such names"


def test_commands_that_pages_show_are_commands() -> None:
    from penstock.streams.cli.main import COMMANDS

    names = {command.name for command in COMMANDS}
    for page in pages():
        shown = re.findall(r"(?:^    |`)penstock ([a-z-]+)", (PAGES / page).read_text(), re.MULTILINE)
        assert set(shown) <= names, page


class Outside(HTMLParser):
    """Collects what a browser would fetch from the web to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        address = given.get("src") or (given.get("href") if tag == "link" else None) or ""
        if "//" in address and given.get("rel") not in ("canonical", "next", "prev"):
            self.found.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; any warning ends the build."""
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "-f",
        str(ROOT / "docs/mkdocs.yml"),
        "-d",
        str(folder),
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_site_has_every_page_and_fetches_nothing_from_the_web(site: Path) -> None:
    built = {str(path.relative_to(site)) for path in site.rglob("*.html")}
    assert {page.replace(".md", ".html") for page in pages()} <= built
    assert {"operating.html", "language.html", "deploy.html", "changelog.html"} <= built
    for path in built:
        parser = Outside()
        parser.feed((site / path).read_text())
        assert parser.found == [], path


def test_pictures_are_drawn_and_reference_has_docstrings(site: Path) -> None:
    concepts = (site / "concepts.html").read_text()
    assert concepts.count('<svg class="picture"') == (PAGES / "concepts.md").read_text().count("{{ picture") == 6
    assert "{{ picture" not in concepts
    reference = (site / "reference" / "topologies.html").read_text()
    assert "flat_map_values" in reference
    running = (site / "reference" / "running.html").read_text()
    assert "log_records" in re.sub(r"<[^>]*>", "", running.split("</pre>")[0]), "classes are shown with what makes them"
    for page in (site / "reference").glob("*.html"):
        assert "See the module" not in page.read_text(), f"{page.name}: nobody sees the module there"
    assert (ps.KStream.filter.__doc__ or "").split(".")[0].split("``")[0].strip()[:30] in reference


def test_make_has_the_target() -> None:
    assert shutil.which("make") is None or "docs:" in (ROOT / "Makefile").read_text()


def named_tests(page: str) -> list[tuple[str, str | None]]:
    """The tests that a page names: file, and function."""
    found = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (PAGES / page).read_text())
    return [(path, name or None) for path, name in found]


def test_every_feature_has_a_test_that_exists() -> None:
    rows = [line for line in (PAGES / "features.md").read_text().splitlines() if line.startswith("| ")]
    claims = [line for line in rows if not line.startswith(("| feature", "| ---"))]
    assert len(claims) > 40
    assert [line for line in claims if "`tests/" not in line.split("|")[3]] == []
    for path, name in named_tests("features.md"):
        assert (ROOT / path).is_file(), path
        code = (ROOT / path).read_text()
        assert name is None or re.search(rf"^ *(?:async )?def {name}\(", code, re.MULTILINE), f"{path} has no {name}"
