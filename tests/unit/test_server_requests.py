"""What the server makes of requests before any verifier is asked: JSON, faults, uploads, hosts."""

import asyncio
import base64
import dataclasses
import time
from pathlib import Path

import pytest
from PIL import Image as PILImage
from pydantic import ValidationError

from proofreel.core.errors import ConfigError, MediaError
from proofreel.core.pairs import Image
from proofreel.data_prep.media import FrameSampling
from proofreel.server.launch import check_exposure, own_names
from proofreel.server.media import Library, describe, picture, prepare, thumbnail
from proofreel.server.media_root import MediaRoot
from proofreel.server.middleware import Guard, Measures
from proofreel.server.schemas import ScoreRequest
from proofreel.server.settings import MOST_FAULTS, Faults, RefusedError, Settings
from proofreel.server.strict_json import MOST_VALUES, loads, schema_faults
from proofreel.server.uploads import Uploads, media_suffix

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
JPEG = b"\xff\xd8\xff\xe0" + bytes(40)


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '[{"x": {"a": 1, "b": 2, "a": 1}}]'])
def test_a_key_that_is_named_twice_is_refused(text):
    with pytest.raises(RefusedError, match=r"twice, got 'a'") as caught:
        loads(text.encode())
    assert caught.value.status == 400
    assert loads(b'{"a": {"a": 1}, "b": [{"a": 2}]}') == {"a": {"a": 1}, "b": [{"a": 2}]}


def test_one_key_of_many_named_twice_is_found_in_one_pass():
    """Counting every name in all names took 44 s for 600 KB of a stranger's keys."""
    names = [f'"{i}": 1' for i in range(100_000)]
    with pytest.raises(RefusedError, match=r"twice, got '7'"):
        loads(f"{{{', '.join([*names, names[7]])}}}".encode())


def test_more_values_than_any_request_needs_are_refused_before_they_are_validated():
    assert len(loads(b"[" + b"0," * (MOST_VALUES - 1) + b"0]")) == MOST_VALUES
    for body in (b"[" + b"0," * MOST_VALUES + b"0]", b"[" + b'{"a": []},' * (MOST_VALUES // 2 + 1) + b"0]"):
        with pytest.raises(RefusedError, match=f"too many values, got .* of at most {MOST_VALUES}") as caught:
            loads(body)
        assert caught.value.status == 413
    assert loads(b'["' + b"," * MOST_VALUES * 2 + b'"]'), "commas of a text are no values"


BODY = {
    "claims": [1, "x"],
    "evidence": [
        {"kind": "video", "path": "a.mp4", "start_s": "0"},
        {"kind": "smell"},
        {"path": "a.mp4"},
        {"kind": "video"},
        {"kind": "passage", "text": "x", "txet": "y"},
    ],
    "contexts": "x",
    "prior": 2,
    "operating_pint": "x",
}
PLACES = [
    "claims[0]",
    "contexts",
    "evidence[0].start_s",
    "evidence[1]",
    "evidence[2]",
    "evidence[3].path",
    "evidence[4].txet",
    "operating_pint",
    "prior",
]


def faults_of(body):
    with pytest.raises(ValidationError) as caught:
        ScoreRequest.model_validate(body)
    return schema_faults(caught.value.errors(), body, [*ScoreRequest.model_fields, "text"]).refusal()


def test_every_fault_is_named_at_its_place_with_its_remedy():
    refusal = faults_of(BODY)
    assert sorted(where for where, _ in refusal.faults) == PLACES
    messages = dict(refusal.faults)
    for where, message in messages.items():
        assert message.startswith(f"{where}: ")
        assert ", got " in message
        assert "; " in message
    assert "write operating_point" in messages["operating_pint"]
    assert "write text" in messages["evidence[4].txet"]
    assert str(refusal).splitlines() == [message for _, message in refusal.faults]


def test_a_thousand_faults_are_counted_and_not_all_written():
    refusal = faults_of({"claims": [1] * 1000, "evidence": [{"kind": "passage", "text": "x"}]})
    assert len(refusal.faults) == MOST_FAULTS
    assert str(refusal).endswith(f"and {1000 - MOST_FAULTS} more")


def test_only_what_is_written_out_of_many_faults_is_worded(monkeypatch):
    """Wording a fault costs a search for the key that was meant: 600 KB of unknown keys took more than 200 s."""
    searches = []
    monkeypatch.setattr("difflib.get_close_matches", lambda *given: searches.append(given) or [])
    question = {"claims": ["x"], "evidence": [{"kind": "passage", "text": "x"}]}
    refusal = faults_of({**question, **{f"key {i}": 1 for i in range(20_000)}})
    assert len(searches) == MOST_FAULTS
    assert str(refusal).endswith(f"and {20_000 - MOST_FAULTS} more")


def test_faults_keep_their_status_and_do_not_repeat():
    faults = Faults()
    for where, status in (("a", 403), ("b", 404), ("a", 403)):
        with faults.at(where):
            raise RefusedError(status, "path: wrong, got it; fix it")
    with pytest.raises(RefusedError) as caught:
        faults.check()
    assert caught.value.status == 403
    assert str(caught.value).splitlines() == ["a.path: wrong, got it; fix it", "b.path: wrong, got it; fix it"]
    Faults().check()


def test_an_image_beyond_the_limit_is_refused_before_a_pixel_is_decoded(tmp_path, monkeypatch):
    PILImage.new("RGB", (90, 110)).save(tmp_path / "a.png")
    library = Library(str(tmp_path), str(tmp_path / "cache"), 1.0, FrameSampling(), 600.0, 90 * 110)
    prepare(library, (Image("a.png"),))

    def never(*_):
        raise AssertionError("decoded")

    monkeypatch.setattr(PILImage.Image, "load", never)
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", never)
    smaller = dataclasses.replace(library, max_pixels=90 * 110 - 1)
    for ask in (lambda: prepare(smaller, (Image("a.png"),)), lambda: describe(smaller, "a.png")):
        with pytest.raises(MediaError, match="90 x 110 of at most 9899 pixels"):
            ask()
    for ask in (lambda: picture(smaller, Image("a.png")), lambda: thumbnail(smaller, "a.png")):
        with pytest.raises(MediaError, match="--max-pixels"):
            ask()


KINDS = {
    b"\x00\x00\x00\x20ftypisom": ".mp4",
    b"\x00\x00\x00\x20ftypavif": ".avif",
    b"RIFF\x00\x00\x00\x00WEBPVP8 ": ".webp",
    b"RIFF\x00\x00\x00\x00AVI LIST": ".avi",
    b"RIFF\x00\x00\x00\x00WAVEfmt ": None,
    PNG: ".png",
    JPEG: ".jpg",
    b"#EXTM3U\nfile:///etc/passwd": None,
    b"ffconcat version 1.0\nfile /etc/passwd": None,
    b"%!PS-Adobe-3.0 EPSF-3.0": None,
    b"<svg xmlns='http://www.w3.org/2000/svg'>": None,
    b"": None,
}


@pytest.mark.parametrize("head", KINDS, ids=ascii)
def test_only_pictures_and_videos_of_known_kinds_are_kept(head, tmp_path):
    assert media_suffix(head) == KINDS[head]
    uploads = Uploads(tmp_path, 1000, 10_000)
    url = "data:image/png;base64," + base64.b64encode(head).decode()
    if KINDS[head] is None:
        with pytest.raises(RefusedError) as caught:
            uploads.keep_url(url)
        assert caught.value.status == 415
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    else:
        name = uploads.keep_url(url)
        assert Path(uploads.find(name)).read_bytes() == head
        assert uploads.hide(f"{uploads.find(name)}: bad") == f"{name}: bad"


async def _chunks(*parts):
    for part in parts:
        yield part


def test_uploads_in_pieces_are_the_same_file_as_the_data_url_and_stay_unchanged(tmp_path):
    uploads = Uploads(tmp_path, 1000, 10_000)
    name = asyncio.run(uploads.receive(_chunks(PNG[:3], PNG[3:20], PNG[20:])))
    before = Path(uploads.find(name)).stat()
    assert uploads.keep_url("data:;base64," + base64.b64encode(PNG).decode()) == name
    assert Path(uploads.find(name)).stat() == before
    assert Path(Uploads(tmp_path, 1000, 10_000, shared=True).find(name)).stat() == before  # another process's


def test_uploads_keep_to_their_limits(tmp_path):
    uploads = Uploads(tmp_path, 1000, 1400)
    for size in (1001, 100_000):
        with pytest.raises(RefusedError) as caught:
            asyncio.run(uploads.receive(_chunks(PNG, bytes(size - len(PNG)))))
        assert caught.value.status == 413
        with pytest.raises(RefusedError):
            uploads.keep_url("data:;base64," + base64.b64encode(PNG + bytes(size)).decode())
    first, second = (asyncio.run(uploads.receive(_chunks(PNG, bytes([i]) * 500))) for i in (1, 2))
    time.sleep(0.05)  # the clock of files ticks in milliseconds
    uploads.find(first)  # the second is now the one used longest ago
    third = asyncio.run(uploads.receive(_chunks(PNG, bytes([3]) * 500)))
    assert sum(file.stat().st_size for file in (tmp_path / "entries").rglob("*") if file.is_file()) <= 1400
    for name in (first, third):
        assert uploads.find(name)
    with pytest.raises(RefusedError, match="no such upload"):
        uploads.find(second)


@pytest.mark.parametrize("name", ["upload:../x", "upload:", "upload:/etc/passwd", "upload:a.mp4", "upload:.."])
def test_a_name_that_was_never_given_out_is_not_found(tmp_path, name):
    (tmp_path / "a.mp4").write_bytes(b"x")
    root = MediaRoot(None, 100, Uploads(tmp_path, 10, 10))
    with pytest.raises(RefusedError) as caught:
        root.find(name)
    assert caught.value.status == 404


@pytest.mark.parametrize(
    "url", ["data:,x", "data:image/png,x", "data:image/png;base64", "data:;base64,*", "data:;base64,=A"]
)
def test_data_urls_that_are_not_base64_are_refused(tmp_path, url):
    with pytest.raises(RefusedError) as caught:
        MediaRoot(None, 100, Uploads(tmp_path, 1000, 1000)).find_url(url)
    assert caught.value.status == 400


def passes(headers, path="/info", method="GET", **settings):
    """The status that a request with these headers gets from a guard before an application that says 200."""

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def ask():
        statuses = []

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            statuses.append(message.get("status"))

        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": method, "path": path, "headers": encoded, "query_string": b""}
        await Guard(app, Settings(**settings), Measures(), frozenset())(scope, receive, send)
        return statuses[0]

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:8000", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:8000", 200),
        ("LOCALHOST", 200),
        ("judge.example.org:8000", 200),
        ("evil.example", 400),
        ("localhost.evil.example", 400),
        ("localhost@evil.example", 400),
        ("192.168.0.7", 400),
        ("", 400),
    ],
)
def test_only_trusted_names_of_the_server_are_answered(host, status):
    assert passes({"host": host}, hosts=("judge.example.org",)) == status
    assert passes({"host": host}, "/healthz") == 200
    assert passes({"host": host}, hosts=("*",)) == 200
    assert passes({}) == 400


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://localhost:8000"}, 200),
        ({"origin": "https://localhost:8000"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://localhost:9000"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
        ({"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 200),
        ({"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "origin": "http://localhost:8000"}, 200),
        ({"sec-fetch-site": "none", "sec-fetch-mode": "navigate"}, 200),
    ],
)
def test_pages_of_other_sites_get_nothing(headers, status):
    for path in ("/info", "/frames", "/score", "/media", "/metrics"):
        assert passes({"host": "localhost:8000"} | headers, path) == status
    if headers.get("sec-fetch-mode") == "navigate" and status == 200 and headers["sec-fetch-site"] == "cross-site":
        assert passes({"host": "localhost:8000"} | headers, "/score", "POST") == 403


def test_a_server_that_others_reach_needs_a_token_or_a_word():
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        with pytest.raises(ConfigError, match="PROOFREEL_TOKEN"):
            check_exposure(host, None, no_token=False)
        check_exposure(host, "secret", no_token=False)
        check_exposure(host, None, no_token=True)
    for host in ("127.0.0.1", "::1", "localhost", "127.0.0.9"):
        check_exposure(host, None, no_token=False)
    with pytest.raises(ConfigError):
        check_exposure("0.0.0.0", "secret", no_token=True)


def test_a_server_is_called_by_its_address_and_never_by_all_addresses():
    assert own_names("192.0.2.1") == ("192.0.2.1",)
    assert own_names("::1") == ("[::1]",)
    assert not {"0.0.0.0", "*", ""} & {*own_names("0.0.0.0")}


@pytest.mark.parametrize("host", ["", "*x", "a*", "*.*"])
def test_names_that_are_none_are_refused(host):
    with pytest.raises(ConfigError):
        Settings(hosts=(host,))
    assert Settings(hosts=("*.example.org",)).hosts == ("*.example.org",)
