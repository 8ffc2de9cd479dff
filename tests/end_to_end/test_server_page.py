"""The page: with a keyboard alone a clip and a span are picked and claims typed; frames, verdicts, threshold show."""

import re
import time

import pytest
from headless import CHROMIUM, Browser
from nightly import only
from serving import CLAIMS, media_root, serving

from proofreel.core.pairs import VideoSegment
from proofreel.server.page import PAGE, page

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
TAB, DOWN, ENTER = ("Tab", 9), ("ArrowDown", 40), ("Enter", 13)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    with serving(media_root(folder / "media"), folder / "cache") as running:
        yield running


def focused(browser):
    return browser.value("document.activeElement.id || document.activeElement.value || document.activeElement.tagName")


def tab_to(browser, wanted):
    for _ in range(20):
        if focused(browser) == wanted:
            return
        browser.press(*TAB)
    raise AssertionError(f"no key leads to {wanted}, but to {focused(browser)}")


def shown(browser):
    script = "[...document.querySelectorAll('#verdicts li')].map(li => [li.className, li.innerText])"
    return browser.value(script)


def test_the_page_is_one_file_that_asks_nobody_else():
    text = PAGE.read_text(encoding="utf-8")
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!data:)""", text)
    assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}
    assert "innerHTML" not in text
    policy = page().headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert policy.count("sha256-") == 2
    assert not re.search(r"<[^>]+\s(?:style|on[a-z]+)=", text)


WINDOWS = [(1400, False), (420, True), (1400, True), (420, False)]


@needs_browser
@pytest.mark.parametrize(("width", "dark"), only(WINDOWS[:2], WINDOWS))
def test_a_person_with_a_keyboard_gets_verdicts(server, tmp_path, width, dark):
    verifier = server.service.verifier
    with Browser(tmp_path / "profile", width, 900, dark) as browser:
        browser.open(server.url)
        browser.wait("document.querySelectorAll('#frames img').length === 8")
        assert browser.value("document.querySelector('input[name=clip]:checked').value") == "a.mp4"
        tab_to(browser, "a.mp4")
        browser.press(*DOWN)
        browser.wait("document.getElementById('clip-note').textContent.startsWith('b.mp4')")
        tab_to(browser, "end")
        browser.value("document.getElementById('end').select()")
        browser.write("1")
        browser.wait("document.querySelectorAll('#frames img').length === 4")
        assert "0.88 s" in browser.value("document.getElementById('frames').innerText")
        tab_to(browser, "claims")
        browser.write("\n".join([*CLAIMS, "x" * 2500, "<b>Tool is <script>knife</script>.</b>"]))
        browser.press(*ENTER, ctrl=True)
        browser.wait(f"document.querySelectorAll('#verdicts li').length === {len(CLAIMS) + 2}")
        expected = verifier.score(CLAIMS, VideoSegment("b.mp4", 0.0, 1.0))
        found = shown(browser)
        for claim, verdict, (kind, text) in zip(CLAIMS, expected, found, strict=False):
            assert kind == verdict.label
            assert claim in text
            assert f"probability {verdict.p_supported:.3f}" in text
            assert f"threshold {verifier.decision.point().threshold:.3f}" in text
        assert found[-2][0] == "failed"
        assert "longer than 2000 characters" in found[-2][1]
        assert "<b>Tool is <script>knife</script>.</b>" in found[-1][1]
        assert browser.value("document.documentElement.scrollWidth") <= width
        paper = browser.value("getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(22, 24, 27)" if dark else "rgb(255, 255, 255)")
        browser.picture(tmp_path / "page.png")
        assert (tmp_path / "page.png").stat().st_size > 10_000
        asked = [
            e["params"]["request"]["url"] for e in browser.events if e.get("method") == "Network.requestWillBeSent"
        ]
        assert all(url.startswith((server.url, "data:", f"blob:{server.url}")) for url in asked)
        assert [p for p in browser.problems() if "broken.mp4" not in p] == []


@needs_browser
def test_what_is_wrong_is_said_on_the_page(server, tmp_path):
    with Browser(tmp_path / "profile") as browser:
        browser.open(server.url)
        browser.wait("document.querySelectorAll('#frames img').length === 8")
        browser.value("document.querySelector('input[value=\"broken.mp4\"]').click()")
        browser.wait("document.getElementById('clip-note').textContent.includes('not a readable video')")
        browser.value("document.querySelector('input[value=\"a.mp4\"]').click()")
        browser.wait("document.querySelectorAll('#frames img').length === 8")
        browser.value("document.getElementById('start').value = 9")
        browser.value("document.getElementById('start').dispatchEvent(new Event('input'))")
        browser.wait("document.getElementById('frames-note').textContent.includes('reversed')")
        browser.value("document.getElementById('claims').focus()")
        browser.write("Tool is knife.")
        browser.press(*ENTER, ctrl=True)
        browser.wait("document.getElementById('note').textContent.includes('reversed')")
        assert shown(browser) == []


@needs_browser
def test_a_server_with_a_token_asks_for_it(tmp_path):
    with (
        serving(media_root(tmp_path / "media"), tmp_path / "cache", token="open sesame") as server,
        Browser(tmp_path / "profile") as browser,
    ):
        browser.open(server.url)
        browser.wait("!document.getElementById('token').hidden")
        for word in ("wrong", "open sesame"):
            browser.value("document.getElementById('secret').value = ''; document.getElementById('secret').focus()")
            browser.write(word)
            browser.press(*ENTER, text="\r")
            time.sleep(0.5)
        browser.wait("document.querySelectorAll('#frames img').length === 8")
        browser.wait("document.querySelector('.thumb').naturalWidth > 0")
        assert browser.value("document.getElementById('token').hidden")
