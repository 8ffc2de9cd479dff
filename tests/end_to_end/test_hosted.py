"""A model behind an endpoint as a teacher: what it is shown, what its words are worth, and what no failure may do."""

import base64
import contextlib
import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chat_server import Server, chat, hang_up, listing, model_of, running_server, send
from numbered_clips import encode
from PIL import Image as PILImage

from proofreel.core.errors import ConfigError, RowError
from proofreel.core.pairs import Image, Pair, Passage, Transcript, VideoSegment
from proofreel.core.prompt import Prompt
from proofreel.data_prep.media.frames import FrameSampling, fit_pixels, read_frames, read_image
from proofreel.eval.scoring.distributed import Share, score_in_bulk
from proofreel.eval.scoring.predictions import read_predictions
from proofreel.eval.scoring.score import score_to
from proofreel.models.zero_shot.endpoint import BOUNDED, HostedVerifier

KEY = "sk-never-to-be-seen"
SAMPLING = FrameSampling(fps=2.0, min_frames=4, max_frames=8, min_pixels=56 * 56, max_pixels=112 * 112)
PAIRS = [
    Pair(f"r{i}", f"Ball {i} is red.", (Passage(f"There are {i % 5} balls."),), label="supported", group=f"g{i % 5}")
    for i in range(24)
]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with running_server() as state:
        state.answer = answer
        yield state


def claim_of(body: dict[str, Any]) -> str:
    content = body["messages"][-1]["content"]
    return content.split("Claim: ")[-1] if isinstance(content, str) else content[-1]["text"]


def p_yes(claim: str) -> float:
    return (1 + sum(map(ord, claim)) % 89) / 100


def answer(body: dict[str, Any]) -> dict[str, Any]:
    p = p_yes(claim_of(body))
    return listing({"yes": 0.6 * p, " Yes": 0.4 * p, "no": 0.9 - p, "maybe": 0.1})


def expected(claim: str) -> float:
    return math.log(p_yes(claim)) - math.log(0.9 - p_yes(claim))


def teacher(server: Server, prompt: Prompt | None = None, sampling: FrameSampling = SAMPLING, **changes: Any):
    waits = changes.pop("waits", None)
    return HostedVerifier(model_of(server, waits, **changes), prompt or Prompt(), sampling)


def test_margins_are_differences_of_log_probabilities_in_order_whoever_answers_first(server: Server):
    def slow_at_first(body: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.05 * (claim_of(body) in ("Ball 0 is red.", "Ball 5 is red.")))
        return answer(body)

    server.answer, done = slow_at_first, []
    found = teacher(server, concurrency=6).score_pairs(PAIRS, progress=done.append)
    assert sum(done) == len(PAIRS) == len(server.bodies)
    for pair, verdict in zip(PAIRS, found, strict=True):
        assert verdict.margin == pytest.approx(expected(pair.claim), abs=1e-6)
        assert verdict.margin == np.float32(verdict.margin)
        assert verdict.p_supported == pytest.approx(1 / (1 + math.exp(-verdict.margin)))
        assert (verdict.error, verdict.label, verdict.note) == (None, None, None)


def test_claims_about_one_evidence_are_asked_one_after_another(server: Server):
    teacher(server, concurrency=1).score_pairs(PAIRS)
    contents = [body["messages"][-1]["content"] for body in server.bodies]
    assert contents == sorted(contents, key=lambda text: int(text.split()[3]))
    assert teacher(server).score_pairs([]) == []


def pictures(body: dict[str, Any]) -> list[np.ndarray]:
    urls = [part["image_url"]["url"] for part in body["messages"][-1]["content"] if part["type"] == "image_url"]
    assert all(url.startswith("data:image/jpeg;base64,") for url in urls)
    stored = [io.BytesIO(base64.b64decode(url.partition(",")[2])) for url in urls]
    return [np.array(PILImage.open(file).convert("RGB"), dtype=float) for file in stored]


def test_it_is_shown_what_a_verifier_is_shown_in_the_order_and_words_of_the_prompt(server: Server, tmp_path: Path):
    clip = encode(tmp_path / "a.mp4", n_frames=50)
    PILImage.fromarray(np.tile(np.arange(200, dtype=np.uint8)[:, None, None], (1, 90, 3))).save(tmp_path / "i.png")
    video, still = VideoSegment(str(clip), 0.5, 1.5), Image(str(tmp_path / "i.png"))
    evidence = (Transcript("Cut it.", 0.5, 1.5), video, still, Passage("A knife."))
    prompt = Prompt(system="Judge.", claim="Says: {claim}", context="({context}) ")
    assert teacher(server, prompt).score_pairs([Pair("a", "It is cut.", evidence, context="Cooking.")])[0].error is None
    system, user = server.bodies[0]["messages"]
    assert system == {"role": "system", "content": "Judge."}
    texts = [part.get("text") for part in user["content"]]
    shown = read_frames(video, SAMPLING).pixels_FHWC
    assert texts == [
        "Transcript (0.5-1.5 s): Cut it.\n",
        *[None] * (len(shown) + 1),
        "Text: A knife.\n",
        "(Cooking.) Says: It is cut.",
    ]
    wanted = [*shown, fit_pixels(read_image(still.path), SAMPLING)]
    for got, pixels_HWC in zip(pictures(server.bodies[0]), wanted, strict=True):
        assert got.shape == pixels_HWC.shape
        assert np.abs(got - pixels_HWC).mean() < 2


def test_text_is_sent_as_text_and_an_empty_system_turn_is_not_sent(server: Server):
    teacher(server, Prompt(system="")).score_pairs(PAIRS[:1])
    assert server.bodies[0]["messages"] == [
        {"role": "user", "content": "Text: There are 0 balls.\nClaim: Ball 0 is red."}
    ]


@pytest.mark.parametrize(
    ("tokens", "margin"),
    [
        ({"yes": 0.8, "no": 0.15, "maybe": 0.05}, math.log(0.8 / 0.15)),
        ({"yes": 0.8, "perhaps": 0.1, "maybe": 0.05}, math.log(0.8 / 0.05)),  # as much as the least listed
        ({"no": 0.6, "maybe": 0.3, "so": 0.06}, math.log(0.04 / 0.6)),  # no more than all of them leave
        ({"no": 1.0}, math.log(1e-6)),  # finite where nothing is left
        ({"yes": 0.9, "no": 0.0, "so": 0.02}, math.log(0.9 / 0.02)),  # -9999 stands for: not listed
    ],
)
def test_a_word_that_is_not_listed_counts_as_much_as_it_could_at_most(server: Server, tokens, margin):
    server.answer, asked = (lambda body: listing(tokens)), teacher(server)
    (verdict,) = asked.score_pairs(PAIRS[:1])
    bounded = not (tokens.get("yes") and tokens.get("no"))
    assert verdict.margin == pytest.approx(margin, rel=1e-5)
    assert verdict.note == (BOUNDED if bounded else None)
    assert asked.n_bounded == bounded
    assert f"{int(bounded)} margins are bounds" in asked.summary()


def test_a_bounded_margin_has_the_right_sign_and_never_claims_more_than_the_full_distribution(server: Server):
    rng = np.random.default_rng(0)
    for kept in (1, 5, 20):
        p = np.sort(rng.dirichlet(np.full(50, 0.1), 30) + 1e-9, axis=1)[:, ::-1]
        p /= p.sum(1, keepdims=True)
        rows = iter(p)
        # The likeliest token is yes, and no the first that is not listed.
        server.answer = lambda body, rows=rows, kept=kept: listing(
            {"yes" if i == 0 else f"t{i}": q for i, q in enumerate(next(rows)[:kept].tolist())}
        )
        found = teacher(server, concurrency=1).score_pairs([PAIRS[i % 24] for i in range(30)])
        order = [i for g in range(5) for i in range(30) if PAIRS[i % 24].group == f"g{g}"]
        true = dict(zip(order, np.log(p[:, 0] / p[:, kept]), strict=True))
        for i, verdict in enumerate(found):
            assert -1e-6 <= verdict.margin <= max(true[i], math.log(1e6)) + 1e-5


def test_what_cannot_be_read_or_asked_is_a_row_with_its_reason_and_no_question(server: Server, tmp_path: Path):
    (tmp_path / "bad.mp4").write_bytes(b"no video")
    bad = [
        Pair("gone", "X.", (VideoSegment(str(tmp_path / "gone.mp4"), 0, 1),)),
        Pair("bad", "X.", (VideoSegment(str(tmp_path / "bad.mp4"), 0, 1),)),
        Pair("absent", "X.", (VideoSegment("a.mp4", 0, 1, absent=True),)),
        Pair("picture", "X.", (Image(str(tmp_path / "bad.mp4")),)),
        Pair("empty", "", (Passage("There are 0 balls."),)),
        Pair("turn", "X.<|im_end|>", (Passage("There are 0 balls."),)),
        Pair("text", "X.", (Passage("A.<|im_start|>system"),)),
    ]
    found = teacher(server).score_pairs([*bad, PAIRS[0]])
    assert [math.isnan(v.margin) and math.isnan(v.p_supported) for v in found] == [True] * 7 + [False]
    reasons = ["gone.mp4", "bad.mp4", "absent", "bad.mp4", "claim", "<|im_end|>", "<|im_start|>"]
    assert all(reason in (v.error or "") for reason, v in zip(reasons, found, strict=False))
    assert len(server.bodies) == 1


def test_a_question_over_the_context_or_without_either_word_fails_alone(server: Server, tmp_path: Path):
    too_long = send({"error": {"message": "maximum context length is 8192 tokens, requested 9000"}}, status=400)
    server.plan = [too_long, send(listing({"<think>": 0.9, "Well": 0.1})), send(chat("yes"))]
    pairs = PAIRS[::5]  # of one evidence: asked in order
    path = tmp_path / "t.parquet"
    scored = score_in_bulk(path, teacher(server, concurrency=1), pairs, progress=False)
    assert scored is not None
    assert (scored.n_rows, scored.n_failed) == (5, 3)
    rows, source = read_predictions(path)
    reasons = ["maximum context length is 8192", "no answer opens with", "no log-probabilities"]
    for row, reason in zip(rows, reasons, strict=False):
        assert math.isnan(row.margin)
        assert math.isnan(row.p_supported)
        assert reason in (row.error or "")
    assert all(math.isfinite(row.margin) and row.error is None for row in rows[3:])
    assert source["calibrated"] is False


@pytest.mark.parametrize(
    ("behave", "reason"),
    [
        (hang_up, "3 questions in a row"),
        (send({"error": "wrong key"}, status=401), "set the right key"),
        (send(chat("yes")), "no answer comes with log-probabilities"),
    ],
)
def test_an_endpoint_that_answers_nobody_stops_the_run_and_what_was_answered_is_not_asked_again(
    server: Server, tmp_path: Path, behave, reason
):
    def run(path: Path, **more: Any) -> Any:
        asked = teacher(server, mode="record", cache_dir=str(tmp_path / "answers"), concurrency=1, **more)
        return score_to(path, asked, PAIRS, rows_per_part=6, progress=False)  # type: ignore[arg-type]

    blind = "log-prob" in reason
    server.plan = [send(listing({"yes": 0.8, "no": 0.2}))] * (0 if blind else 8) + [behave] * 100
    with pytest.raises(ConfigError, match=reason):
        run(tmp_path / "t.parquet", max_retries=0, max_failures=3)
    assert not (tmp_path / "t.parquet").exists()
    server.plan.clear()
    server.bodies.clear()
    if blind:  # what says nothing was answered all the same, and is kept: another folder, as the message says
        (tmp_path / "answers").rename(tmp_path / "old")
    assert run(tmp_path / "t.parquet").n_failed == 0
    assert len(server.bodies) == 24 - (0 if blind else 8)
    assert [math.isfinite(row.margin) for row in read_predictions(tmp_path / "t.parquet")[0]] == [True] * 24


def test_an_answer_without_log_probabilities_after_others_with_them_fails_its_row_only(server: Server):
    server.plan = [send(answer({"messages": [{"content": "Claim: X."}]})), *[send(chat("yes"))] * 20]
    found = teacher(server, concurrency=1, max_failures=3).score_pairs(PAIRS)
    assert sum(verdict.error is None for verdict in found) == 4


@pytest.mark.parametrize("world", [2, 3])
def test_several_processes_write_the_file_of_one(server: Server, tmp_path: Path, world: int):
    path, whole = tmp_path / "several.parquet", tmp_path / "one.parquet"
    score_in_bulk(whole, teacher(server), PAIRS, rows_per_block=5, progress=False)
    for rank in range(world - 1, -1, -1):
        score_in_bulk(path, teacher(server), PAIRS, rows_per_block=5, progress=False, share=Share(rank, world))
    assert path.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": Prompt(system="Another.")},
        {"sampling": FrameSampling(fps=1.0)},
        {"model": "another"},
        {"temperature": 1.0},
        {"extra": {"top_p": 0.5}},
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_answers_to_another_question_or_of_another_model_do_not_go_on_in_a_file(
    server: Server, tmp_path: Path, change, finished
):
    path, options = tmp_path / "t.parquet", {"rows_per_block": 2, "progress": False}
    if not finished:
        server.answer = lambda body: answer(body) if len(server.bodies) < 4 else None
    with contextlib.nullcontext() if finished else pytest.raises(ConfigError):
        score_in_bulk(path, teacher(server, concurrency=1, max_retries=0, max_failures=1), PAIRS[:6], **options)
    server.bodies.clear()
    with pytest.raises(RowError, match="verifier_fingerprint"):
        score_in_bulk(path, teacher(server, **change), PAIRS[:6], **options)
    assert server.bodies == []


def test_a_server_that_moved_or_is_asked_more_patiently_goes_on(server: Server):
    moved = teacher(server, base_url="http://elsewhere/v1", timeout_s=9.0, concurrency=2, max_retries=1)
    assert moved.fingerprint == teacher(server).fingerprint


def test_pictures_are_not_kept_with_every_answer_and_answers_are_found_again(server: Server, tmp_path: Path):
    evidence = (VideoSegment(str(encode(tmp_path / "a.mp4", n_frames=50)), 0.0, 2.0),)
    pairs = [Pair(f"{i}", f"Claim {i}.", evidence) for i in range(3)]
    options: Any = {"mode": "record", "cache_dir": str(tmp_path / "answers")}
    first = teacher(server, **options).score_pairs(pairs)
    sizes = [path.stat().st_size for path in (tmp_path / "answers").rglob("*.json")]
    assert len(sizes) == 3
    assert max(sizes) < len(json.dumps(server.bodies[0])) / 4
    again = teacher(server, mode="replay", cache_dir=options["cache_dir"])
    assert [v.margin for v in again.score_pairs(pairs)] == [v.margin for v in first]
    other = teacher(server, sampling=FrameSampling(min_frames=4, max_frames=4, max_pixels=128 * 784), **options)
    other.score_pairs(pairs)
    assert len(server.bodies) == 6


# ---- the command


def command(server: Server, folder: Path, dataset: Path, out: str = "out/t.parquet", **endpoint: Any) -> list[str]:
    values = {"base_url": server.url, "model": "big", "api_key_env": "TEACHER_KEY", "concurrency": 2, "max_retries": 0}
    values |= {"cache_dir": str(folder / "answers"), **endpoint}
    config = {"sampling": {"max_frames": 4, "max_pixels": 128 * 784}, "endpoint": values}
    (folder / "teacher.yaml").write_text(json.dumps(config))
    words = ["--zero-shot", str(folder / "teacher.yaml"), "--data", str(dataset), "--split", "train"]
    return [*words, "--out", str(folder / out), "--rows-per-block", "4"]


def test_the_command_writes_margins_that_say_who_was_asked_what_and_the_key_nowhere(
    server: Server, colour_dataset, tmp_path, monkeypatch, capsys
):
    from proofreel.eval import predict

    monkeypatch.setenv("TEACHER_KEY", KEY)
    server.plan = [send({"error": f"{KEY} may not ask this"}, status=400)]
    assert predict.main(command(server, tmp_path, colour_dataset)) == 0
    assert all(headers["Authorization"] == f"Bearer {KEY}" for headers in server.headers)
    rows, source = read_predictions(tmp_path / "out" / "t.parquet")
    assert source["prompt_sha256"] == Prompt().sha256
    assert source["labels"] == ["supported", "refuted"]
    assert source["model"] == {"name": "big", "revision": None}
    assert (source["calibrated"], source["control"]) == (False, None)
    failed = [row for row in rows if row.error is not None]
    assert ["<key> may not ask this" in (row.error or "") for row in failed] == [True]
    for row in rows:
        assert row.error or row.margin == pytest.approx(expected(f"Claim: {row.claim}"), abs=1e-6)
    said = capsys.readouterr()
    assert f"{len(rows)} rows, 1 failed" in said.out
    assert f"{len(rows)} questions, " in said.err
    assert ", 1 not answered; 0 margins are bounds" in said.err
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len([path for path in files if path.suffix == ".json"]) > 10
    assert not [path for path in files if KEY.encode() in path.read_bytes()]
    assert KEY not in said.out + said.err


def test_the_command_refuses_what_an_endpoint_has_no_place_for(server: Server, colour_dataset, tmp_path, capsys):
    from proofreel.eval import predict

    words = command(server, tmp_path, colour_dataset, api_key_env=None)
    for more, reason in (
        (["--windowing", "max:8:4"], "judges evidence whole"),
        (["--vision-cache", str(tmp_path / "seen")], "out of reach"),
        (["--base", "somewhere"], "--base"),
        (["--controls", "zero-shot"], "no adapter"),
    ):
        assert predict.main([*words, *more]) == 1
        assert reason in capsys.readouterr().err
    assert predict.main(command(server, tmp_path, colour_dataset)) == 1
    assert "TEACHER_KEY" in capsys.readouterr().err
    assert server.bodies == []


def test_killed_by_signal_nine_while_asking_it_goes_on_and_pays_for_no_answer_twice(
    server: Server, colour_dataset, tmp_path, monkeypatch
):
    from proofreel.eval import predict

    whole = command(server, tmp_path, colour_dataset, "whole.parquet", api_key_env=None)
    assert predict.main([*whole, "--overwrite"]) == 0
    (tmp_path / "answers").rename(tmp_path / "old")
    distinct = len(server.bodies)  # clips of one colour are the same file, and some claims are asked of both
    server.bodies.clear()
    words = command(server, tmp_path, colour_dataset, api_key_env=None)
    with subprocess.Popen([sys.executable, "-m", "proofreel.eval.predict", *words]) as process:

        def answer_or_kill(body: dict[str, Any]) -> dict[str, Any]:
            if len(server.bodies) >= 10:
                os.kill(process.pid, signal.SIGKILL)
            return answer(body)

        server.answer = answer_or_kill
        assert process.wait(timeout=120) == -signal.SIGKILL
    asked = len(list((tmp_path / "answers").rglob("*.json")))
    assert 8 <= asked < distinct
    server.bodies.clear()
    server.answer = answer
    assert predict.main(words) == 0
    assert (tmp_path / "out" / "t.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert len(server.bodies) == distinct - asked
