"""The documentation: built strictly, every page reachable from the first one, no other host asked for anything."""

import html.parser
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOADING = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("video", "src")}


class Links(html.parser.HTMLParser):
    """What a page links to, and what a browser loads to show it."""

    def __init__(self) -> None:
        """Nothing is read yet."""
        super().__init__()
        self.pages: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """One tag of the page."""
        for name, value in attrs:
            if tag == "a" and name == "href" and value:
                self.pages.append(value)
            elif (tag, name) in LOADING and value:
                self.loaded.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Links]:
    """The links of every page, by its path below the site."""
    out = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {}
    for path in out.rglob("*.html"):
        pages[path.relative_to(out).as_posix()] = links = Links()
        links.feed(path.read_text(encoding="utf-8"))
    sheets = [path.read_text(encoding="utf-8") for path in out.rglob("*.css")]
    assert sheets
    assert not any(mark in sheet for sheet in sheets for mark in ("url(http", "url(//", '@import "http'))
    return pages


def test_every_page_is_reached_from_the_first(site: dict[str, Links]) -> None:
    expected = {path.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for path in ROOT.glob("docs/**/*.md")}
    expected |= {
        path.relative_to(ROOT).with_suffix(".html").as_posix() for path in ROOT.glob("benchmarks/results/*.md")
    }
    reached, todo = set(), ["index.html"]
    while todo:
        page = todo.pop()
        if page in reached or page not in site:
            continue
        reached.add(page)
        todo += [urlsplit(urljoin(page, link)).path for link in site[page].pages]
    assert expected - reached == set()


def test_no_page_loads_anything_from_another_host(site: dict[str, Links]) -> None:
    loaded = {link for links in site.values() for link in links.loaded}
    assert loaded
    assert [link for link in loaded if urlsplit(link).netloc] == []


def test_the_reference_holds_every_public_name_and_every_command(site: dict[str, Links]) -> None:
    import proofreel
    from proofreel.cli import COMMANDS

    anchors = {urlsplit(link).fragment for links in site.values() for link in links.pages}
    names = {anchor.rpartition(".")[2] for anchor in anchors if anchor.startswith("proofreel.")}
    assert set(proofreel.__all__) - names == set()
    assert {f"proofreel-{name}" for name in COMMANDS} - anchors == set()
