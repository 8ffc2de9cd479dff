"""The server: what comes over HTTP is what `Verifier.score` says, however requests arrive, and all of it is counted."""

import base64
import math
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from PIL import Image as PILImage
from prometheus_client.parser import text_string_to_metric_families
from serving import CLAIMS, SAMPLE, VERIFIER, media_root, serving, until

from proofreel.client import Client, ServerRefusedError
from proofreel.core.pairs import Frames, Passage, Transcript, VideoSegment
from proofreel.data_prep.importers.transcripts import Cue
from proofreel.data_prep.media import frames, read_frames
from proofreel.models.verifier.attribution import Sources
from proofreel.models.verifier.verifier import Verifier
from proofreel.server.chat import word_logprobs


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    with serving(media_root(folder / "media"), folder / "cache") as running:
        yield running


@pytest.fixture(scope="module")
def offline():
    return Verifier.from_pretrained(VERIFIER, device="cpu", media_root=SAMPLE.parent, untrained_evidence=True)


def close(found, expected):
    """Design tolerance of the same function by another route."""
    assert [v.label for v in found] == [v.label for v in expected]
    assert [v.error for v in found] == [v.error for v in expected]
    for f, e in zip(found, expected, strict=True):
        assert f.margin == pytest.approx(e.margin, abs=1e-4 + 1e-5 * abs(e.margin), nan_ok=True)
        assert f.p_supported == pytest.approx(e.p_supported, abs=1e-4, nan_ok=True)


EVIDENCE = {
    "a segment": (VideoSegment("a.mp4", 0.0, 2.0), VideoSegment("sample.mp4", 0.0, 2.0)),
    "to the end": (VideoSegment("day/c.mp4", 0.5), VideoSegment("sample.mp4", 0.5)),
    "text": (Passage("Somebody chops an onion."), Passage("Somebody chops an onion.")),
    "several": (
        (VideoSegment("b.mp4", 0.0, 1.0), Transcript("now we chop", 0.0, 1.0)),
        (VideoSegment("sample.mp4", 0.0, 1.0), Transcript("now we chop", 0.0, 1.0)),
    ),
}


@pytest.mark.parametrize("name", EVIDENCE)
def test_verdicts_are_those_of_the_verifier(server, offline, name):
    there, here = EVIDENCE[name]
    with Client(server.url) as client:
        close(client.score([*CLAIMS, "", "x" * 3000], there), offline.score([*CLAIMS, "", "x" * 3000], here))
        contexts = ["Somebody cooks.", None, *[None] * 3]
        close(client.score(CLAIMS, there, contexts), offline.score(CLAIMS, here, contexts))
        found = client.score(CLAIMS, there, prior=0.2, operating_point="balanced_accuracy")
        close(found, offline.score(CLAIMS, here, prior=0.2, operating_point="balanced_accuracy"))


def test_frames_of_a_clip_are_judged_as_the_clip_and_keep_to_the_root(server, offline, tmp_path):
    read = read_frames(VideoSegment("sample.mp4", 0.0, 2.0), offline.encoder.sampling, SAMPLE.parent)
    files = [tmp_path / f"{i}.png" for i in range(len(read.times_s))]
    for file, pixels_HWC in zip(files, read.pixels_FHWC, strict=True):  # of the size the network sees
        PILImage.fromarray(pixels_HWC).save(file)
    times_s = read.times_s.tolist()
    with Client(server.url) as client:
        uploaded = [client.upload(file) for file in files]
        close(client.score(CLAIMS, Frames(uploaded, times_s)), offline.score(CLAIMS, Frames(files, times_s)))
        for path in ("../secret.mp4", "https://127.0.0.1:9/a.png", "s3://bucket/a.png", "zip://a.png::a.zip"):
            with pytest.raises(ServerRefusedError) as caught:
                client.score(CLAIMS, Frames([uploaded[0], path], times_s[:2]))
            assert caught.value.status in (403, 404)
        with pytest.raises(ServerRefusedError, match="do not increase"):
            client.score(CLAIMS, Frames(uploaded[:2], [1.0, 1.0]))


def test_a_link_inside_the_root_is_the_file_it_leads_to(server):
    with Client(server.url) as client:
        direct, linked = (client.score(CLAIMS, VideoSegment(n, 0.0, 2.0)) for n in ("a.mp4", "inside.mp4"))
    assert direct == linked


def test_requests_in_any_mix_get_their_own_verdicts(server, offline):
    spans = [(0.0, 1.0), (0.5, 1.5), (1.0, 2.0), (0.0, 2.0)]
    expected = {span: offline.score(CLAIMS, VideoSegment("sample.mp4", *span)) for span in spans}
    with Client(server.url) as client, ThreadPoolExecutor(16) as pool:

        def ask(i):
            span, first = spans[i % len(spans)], i % len(CLAIMS)
            claims = CLAIMS[first:] + CLAIMS[:first]
            return span, first, client.score(claims, VideoSegment(("a.mp4", "b.mp4")[i % 2], *span))

        for span, first, found in pool.map(ask, range(64)):
            close(found, expected[span][first:] + expected[span][:first])


def test_requests_about_one_evidence_that_wait_are_one_pass(server):
    with Client(server.url) as client:
        client.score(CLAIMS, VideoSegment("a.mp4", 0.0, 1.75))
        batches, claims = server.count("proofreel_batch_claims_count"), server.count("proofreel_batch_claims_sum")
        with ThreadPoolExecutor(12) as pool:
            with server.service.verifier.scorer.lock:  # the network is busy while they arrive
                answers = [pool.submit(client.score, CLAIMS, VideoSegment("a.mp4", 0.0, 1.75)) for _ in range(12)]
                until(lambda: server.count("proofreel_queue_claims") == 12 * len(CLAIMS))
            found = [answer.result() for answer in answers]
    for verdicts in found[1:]:
        close(verdicts, found[0])
    assert server.count("proofreel_batch_claims_sum") - claims == 12 * len(CLAIMS)
    assert server.count("proofreel_batch_claims_count") - batches <= 2  # the one that was waited with, and the rest


def test_the_openai_route_gives_log_probabilities_of_the_label_words(server, offline):
    parts = [{"type": "video_url", "video_url": {"url": "a.mp4#t=0,2"}}, {"type": "text", "text": CLAIMS[0]}]
    messages = [{"role": "system", "content": "You are helpful."}, {"role": "user", "content": parts}]
    body = {"model": "any", "messages": messages, "logprobs": True, "top_logprobs": 2, "temperature": 0}
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body).json()
    (expected,) = offline.score(CLAIMS[:1], VideoSegment("sample.mp4", 0.0, 2.0))
    (choice,) = answer["choices"]
    (token,) = choice["logprobs"]["content"]
    words = {w["token"]: w["logprob"] for w in token["top_logprobs"]}
    assert choice["message"] == {"role": "assistant", "content": "yes" if expected.margin >= 0 else "no"}
    assert words["yes"] - words["no"] == pytest.approx(expected.margin, abs=1e-3)
    assert sum(map(math.exp, words.values())) == pytest.approx(1.0)
    assert token["token"] == choice["message"]["content"]
    assert answer["proofreel"]["p_supported"] == pytest.approx(expected.p_supported, abs=1e-4)
    assert answer["proofreel"]["label"] == expected.label
    text = [{"role": "user", "content": [{"type": "text", "text": "An onion is chopped."}, parts[1]]}]
    answer = httpx.post(f"{server.url}/v1/chat/completions", json={"messages": text}).json()
    (expected,) = offline.score(CLAIMS[:1], Passage("An onion is chopped."))
    assert answer["proofreel"]["margin"] == pytest.approx(expected.margin, abs=1e-3)
    assert answer["choices"][0]["logprobs"] is None


@pytest.mark.parametrize("margin", [-800.0, -3.0, 0.0, 0.5, 40.0, 800.0])
def test_the_restricted_softmax_is_that_of_two_logits(margin):
    words = {w["token"]: w["logprob"] for w in word_logprobs(margin, "yes", "no")}
    assert words["yes"] == pytest.approx(-math.log1p(math.exp(-margin)) if margin > -700 else margin)
    assert words["no"] == pytest.approx(-math.log1p(math.exp(margin)) if margin < 700 else -margin)


def test_metrics_count_requests_claims_and_failures(server):
    def counted():
        text = httpx.get(f"{server.url}/metrics").text
        samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
        return {(s.name, *sorted(s.labels.values())): s.value for s in samples}

    before = counted()
    with Client(server.url) as client:
        client.score([*CLAIMS, ""], VideoSegment("a.mp4", 0.0, 2.0))
    httpx.post(f"{server.url}/score", json={"claims": ["x"], "evidence": [{"kind": "video", "path": "../x.mp4"}]})
    httpx.get(f"{server.url}/a/strange/path")
    after = counted()
    grown = {key: after[key] - before.get(key, 0.0) for key in after if after[key] != before.get(key, 0.0)}
    assert grown["proofreel_requests_total", "/score", "200"] == 1
    assert grown["proofreel_requests_total", "/score", "403"] == 1
    assert grown["proofreel_requests_total", "404", "other"] == 1
    assert grown["proofreel_claims_total", "scored"] == len(CLAIMS)
    assert grown["proofreel_claims_total", "failed"] == 1
    assert grown["proofreel_failures_total", "claim"] == 1
    assert grown["proofreel_failures_total", "outside_media_root"] == 1
    assert grown["proofreel_request_seconds_count", "/score"] == 2
    assert grown["proofreel_batch_claims_sum",] == len(CLAIMS) + 1
    assert after["proofreel_queue_claims",] == 0


def test_health_api_description_and_models(server):
    assert httpx.get(f"{server.url}/healthz").json() == {
        "live": True,
        "ready": True,
        "draining": False,
        "network": True,
    }
    described = httpx.get(f"{server.url}/openapi.json").json()
    assert {"/score", "/attribute", "/healthz", "/metrics", "/v1/chat/completions"} <= set(described["paths"])
    assert "VideoPiece" in described["components"]["schemas"]
    assert httpx.get(f"{server.url}/docs").status_code == 200
    (model,) = httpx.get(f"{server.url}/v1/models").json()["data"]
    assert model["id"] == server.service.verifier.fingerprint
    info = httpx.get(f"{server.url}/info").json()
    assert info["threshold"] == server.service.verifier.decision.point().threshold


def test_frames_are_those_the_verifier_looks_at(server):
    found = httpx.get(f"{server.url}/frames", params={"path": "a.mp4", "start_s": 0, "end_s": 1}).json()["frames"]
    assert [f["time_s"] for f in found] == pytest.approx([0.125, 0.375, 0.625, 0.875])
    assert httpx.get(f"{server.url}/thumbnail", params={"path": "a.mp4"}).content[:2] == b"\xff\xd8"
    assert httpx.get(f"{server.url}/clip", params={"path": "a.mp4"}).json()["duration_s"] == pytest.approx(2.0)
    listed = [clip["path"] for clip in httpx.get(f"{server.url}/clips").json()["clips"]]
    assert listed == ["a.mp4", "b.mp4", "broken.mp4", "hangs.mp4", "day/c.mp4"]


def test_a_batch_that_fails_is_asked_one_by_one(server, monkeypatch):
    score_pairs = server.service.verifier.score_pairs

    def fragile(pairs):
        if any(p.claim == "Break." for p in pairs):
            raise RuntimeError("an inner secret")
        return score_pairs(pairs)

    monkeypatch.setattr(server.service.verifier, "score_pairs", fragile)
    evidence = {"evidence": [{"kind": "video", "path": "a.mp4", "end_s": 2.0}]}
    barrier = threading.Barrier(6)

    def ask(i):
        barrier.wait()
        return httpx.post(f"{server.url}/score", json=evidence | {"claims": ["Break."] if i == 3 else CLAIMS})

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(ask, range(6)))
    assert [a.status_code for a in answers] == [200, 200, 200, 500, 200, 200]
    assert "an inner secret" not in answers[3].text
    assert httpx.get(f"{server.url}/healthz").status_code == 200


@pytest.mark.parametrize(
    "citations", ["(visual, 0:00-0:01; audio, 0:01; visual, 0:07)", ["(visual, 0:01)"], "(smell, 0:01)"]
)
def test_attribution_is_that_of_the_verifier(server, offline, citations):
    cues = [Cue(0.0, 2.0, "now we chop the onion")]
    expected = offline.attribute(CLAIMS[0], citations, Sources("sample.mp4", cues))
    with Client(server.url) as client:
        found = client.attribute(CLAIMS[0], citations=citations, video="a.mp4", transcript=[vars(c) for c in cues])
    assert found["claim"] == expected.claim
    assert found["is_complete"] == expected.is_complete
    assert [c["relevant"] for c in found["citations"]] == [*expected.relevant]
    assert [c["necessary"] for c in found["citations"]] == [*expected.necessary]
    pairs = [(found["recall"], expected.recall)]
    for there, here in zip(found["citations"], expected.citations, strict=True):
        assert there["problem_kind"] == (here.problem and here.problem.kind)
        pairs += [(there["alone"], here.alone), (there["without"], here.without)]
    for there, here in pairs:
        assert (there is None) == (here is None)
        if there and here:
            assert there["margin"] is None if here.error else there["margin"] == pytest.approx(here.margin, abs=1e-3)
            assert there["label"] == here.label


def test_attribution_keeps_to_the_root_and_the_limits(server):
    with Client(server.url) as client:
        for video, status in (("../secret.mp4", 403), ("nothing.mp4", 404), ("broken.mp4", 422)):
            with pytest.raises(ServerRefusedError) as caught:
                client.attribute("x", citations="(visual, 0:01)", video=video)
            assert caught.value.status == status
        many = [f"(visual, 0:00-0:01.{i:03})" for i in range(1, 300)]
        with pytest.raises(ServerRefusedError) as caught:
            client.attribute("x", citations=many, video="a.mp4")
        assert caught.value.status == 413


def test_help_and_import_load_neither_torch_nor_the_extra():
    code = (
        "import sys, proofreel, proofreel.cli\n"
        "try: proofreel.cli.main(['serve', '--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit(sum(n in sys.modules for n in ('torch', 'fastapi', 'uvicorn', 'httpx', 'prometheus_client')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--media-root" in done.stdout


def test_without_the_extra_the_command_names_it():
    code = "import sys; sys.modules['fastapi'] = None; from proofreel.cli import main; sys.exit(main(['serve', 'x']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "proofreel[serve]" in done.stderr
    assert "fastapi" in done.stderr


def posted(server, path, body, status=200):
    answer = httpx.post(f"{server.url}{path}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def content(url="a.mp4#t=0,2"):
    return {"content": [{"type": "video_url", "video_url": {"url": url}}]}


@pytest.fixture(scope="module")
def of_documents(offline):
    """P(supported) and margin of a claim by each of three documents: a text, a segment, a text."""
    documents = (Passage("Somebody sleeps."), VideoSegment("sample.mp4", 0.0, 2.0), Passage("An onion is chopped."))
    verdicts = [offline.score(CLAIMS[:1], document)[0] for document in documents]
    return [v.p_supported for v in verdicts], [v.margin for v in verdicts]


DOCUMENTS = ["Somebody sleeps.", content(), "An onion is chopped."]


@pytest.mark.parametrize("names", [("text_1", "text_2"), ("data_1", "data_2"), ("queries", "documents")])
def test_vllms_form_gives_the_verifiers_probabilities(server, of_documents, names):
    body = {"model": "any", "encoding_format": "float", names[0]: CLAIMS[0], names[1]: DOCUMENTS}
    answer = posted(server, "/score", body)
    assert [d["index"] for d in answer["data"]] == [0, 1, 2]
    assert [d["score"] for d in answer["data"]] == pytest.approx(of_documents[0], abs=1e-4)
    assert {d["object"] for d in answer["data"]} == {"score"}
    assert answer["model"] == server.service.verifier.fingerprint
    assert {"id", "object", "created", "usage"} <= set(answer)
    raw = posted(server, "/score", body | {"use_activation": False})
    assert [d["score"] for d in raw["data"]] == pytest.approx(of_documents[1], abs=1e-3)


def test_vllms_pairs_are_one_to_many_many_to_one_or_in_step(server, offline):
    expected = [v.p_supported for v in offline.score(CLAIMS[:2], VideoSegment("sample.mp4", 0.0, 2.0))]
    for documents in (content(), [content()], [content(), content()]):
        answer = posted(server, "/score", {"text_1": CLAIMS[:2], "text_2": documents})
        assert [d["score"] for d in answer["data"]] == pytest.approx(expected, abs=1e-4)
    for claims, documents in ((CLAIMS[:2], DOCUMENTS), ([], DOCUMENTS), (CLAIMS, [])):
        posted(server, "/score", {"text_1": claims, "text_2": documents}, 400)


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_rerank_puts_what_supports_the_claim_first(server, of_documents, path):
    order = sorted(range(3), key=lambda i: -of_documents[0][i])
    answer = posted(server, path, {"model": "any", "query": CLAIMS[0], "documents": DOCUMENTS})
    assert [r["index"] for r in answer["results"]] == order
    assert [r["relevance_score"] for r in answer["results"]] == pytest.approx(
        [of_documents[0][i] for i in order], abs=1e-4
    )
    assert answer["results"][order.index(0)]["document"] == {"text": DOCUMENTS[0]}
    body = {"query": CLAIMS[0], "documents": [{"text": DOCUMENTS[0]}, *DOCUMENTS[1:]], "top_n": 1}
    (best,) = posted(server, path, body | {"return_documents": False})["results"]
    assert set(best) == {"index", "relevance_score"}
    assert best["index"] == order[0]
    ranks = posted(server, path, {"query": CLAIMS[0], "texts": DOCUMENTS[::2], "return_text": True})
    assert [r["text"] for r in ranks] == [DOCUMENTS[i] for i in order if i != 1]
    assert all(set(r) == {"index", "score", "text"} for r in ranks)


def test_predict_gives_both_labels_of_each_pair(server, of_documents):
    p, margin = of_documents[0][0], of_documents[1][0]
    single = posted(server, "/predict", {"inputs": [CLAIMS[0], DOCUMENTS[0]]})
    scores = {answer["label"]: answer["score"] for answer in single}
    assert scores == {"supported": pytest.approx(p, abs=1e-4), "not_supported": pytest.approx(1 - p, abs=1e-4)}
    assert single[0]["score"] >= single[1]["score"]
    (batch,) = posted(server, "/predict", {"inputs": [[CLAIMS[0], DOCUMENTS[0]]], "raw_scores": True})
    scores = {answer["label"]: answer["score"] for answer in batch}
    assert scores["supported"] == pytest.approx(margin, abs=1e-3)
    for wrong in ("a text", [], [["one"]], ["one", "two", "three"], {"a": 1}):
        posted(server, "/predict", {"inputs": wrong}, 400)


def test_a_document_that_cannot_be_judged_refuses_the_request_by_name(server):
    documents = ["Somebody cooks.", content("broken.mp4"), content("a.mp4#t=7,8")]
    error = posted(server, "/rerank", {"query": CLAIMS[0], "documents": documents}, 422)["error"]
    assert [fault["where"] for fault in error["faults"]] == ["documents[1]", "documents[2]"]
    error = posted(server, "/rerank", {"query": 7, "documents": [content("../x.mp4"), content("no.mp4")]}, 400)["error"]
    places = [fault["where"] for fault in error["faults"]]
    assert places == ["query", "documents[0][0]", "documents[1][0]"]


def test_all_faults_of_a_request_are_said_at_once(server):
    evidence = [{"kind": "video", "path": "../x.mp4"}, {"kind": "video", "path": "no.mp4"}, {"kind": "smell"}]
    body = {"claims": [1, "x"], "evidence": evidence, "operating_pint": "f1"}
    error = posted(server, "/score", body, 400)["error"]
    places = {fault["where"] for fault in error["faults"]}
    assert places == {"claims[0]", "evidence[0]", "evidence[1]", "evidence[2]", "operating_pint"}
    body = {"claims": ["x"], "evidence": evidence[:2], "operating_point": "no", "contexts": []}
    error = posted(server, "/score", body, 403)["error"]
    assert [f["where"] for f in error["faults"]] == ["evidence[0]", "evidence[1]", "contexts", "operating_point"]


def test_what_is_uploaded_or_sent_along_is_judged_as_the_file_is(server, offline):
    expected = offline.score(CLAIMS, VideoSegment("sample.mp4", 0.0, 2.0))
    path = httpx.post(f"{server.url}/upload", content=SAMPLE.read_bytes()).json()["path"]
    url = "data:video/mp4;base64," + base64.b64encode(SAMPLE.read_bytes()).decode()
    with Client(server.url) as client:
        for name in (path, url):
            close(client.score(CLAIMS, VideoSegment(name, 0.0, 2.0)), expected)
        assert client.upload(SAMPLE) == path
    assert httpx.get(f"{server.url}/clip", params={"path": path}).json()["duration_s"] == pytest.approx(2.0)
    late = {"claims": ["x"], "evidence": [{"kind": "video", "path": path, "start_s": 7.0}]}
    message = posted(server, "/score", late, 422)["error"]["message"]
    assert path in message
    assert str(server.service.uploads.folder) not in message


def test_a_file_is_played_with_the_key_that_clip_gives_and_in_ranges(server):
    media = httpx.get(f"{server.url}/clip", params={"path": "a.mp4"}).json()["media"]
    part = httpx.get(f"{server.url}/{media}", headers={"Range": "bytes=4-11"})
    assert (part.status_code, part.content) == (206, SAMPLE.read_bytes()[4:12])
    assert part.headers["x-content-type-options"] == "nosniff"
    for other in (media.replace("a.mp4", "b.mp4"), "media?path=a.mp4&key=", "media?path=a.mp4&key=%C3%A9"):
        assert httpx.get(f"{server.url}/{other}").status_code == 403


def test_nothing_is_decoded_by_the_server_itself(server, monkeypatch):
    """Frames and images come out of children, whatever is asked; the fresh files are in no cache."""

    def never(*_, **__):
        raise AssertionError("decoded in the server's process")

    for name in ("read_frames", "read_image", "read_with_pyav", "read_with_decord", "fit_pixels"):
        monkeypatch.setattr(frames, name, never)
    monkeypatch.setattr(PILImage.Image, "resize", never)
    root = server.service.root.folder
    PILImage.new("RGB", (1500, 1200), (200, 30, 30)).save(root / "red.png")
    (root / "new.mp4").write_bytes(SAMPLE.read_bytes() + b"\0")
    url = "data:image/png;base64," + base64.b64encode((root / "red.png").read_bytes()).decode()
    given = (("image", "red.png"), ("image", url), ("video", "new.mp4"))
    for piece in ({"kind": kind, "path": path} for kind, path in given):
        answer = posted(server, "/score", {"claims": CLAIMS, "evidence": [piece]})
        assert [v["error"] for v in answer["verdicts"]] == [None] * len(CLAIMS)
    for route in ("clip", "thumbnail", "frames"):
        for path in ("red.png", "new.mp4"):
            assert httpx.get(f"{server.url}/{route}", params={"path": path}).status_code == 200
    (root / "red.png").unlink()
    (root / "new.mp4").unlink()
