"""The clips a report shows are the ones it says, with their evidence visible or the reason why not."""

import dataclasses
import math
from pathlib import Path

import av
import numpy as np
from PIL import Image as PILImage

from proofreel.core.pairs import Image, Passage, Transcript, VideoSegment, evidence_key
from proofreel.eval.reports.examples import make_clips, pick_clips
from proofreel.eval.reports.table_rows import Scored, apply_decision
from proofreel.eval.scoring.predictions import Prediction
from proofreel.models.decision.calibration import IDENTITY
from proofreel.models.decision.calibrator import sigmoid
from proofreel.models.decision.thresholds import Decision, OperatingPoint

DECISION = Decision(IDENTITY, (OperatingPoint("f1", "f1", 0.5, 1.0, tp=1, fp=0, tn=1, fn=0, positive_rate=0.5),), "f1")


def _row(i: int, margin: float, positive: bool, evidence: str | None = None, error: str | None = None) -> Prediction:
    return Prediction(
        pair_id=f"p{i}",
        margin=margin if error is None else math.nan,
        p_supported=float(sigmoid(margin)) if error is None else math.nan,
        label="supported" if positive else "refuted",
        split="test",
        group="g",
        role="Action",
        origin="annotated",
        modality="visual",
        error=error,
        claim=f"claim {i}",
        evidence=evidence_key((Passage(f"passage {i}"),)) if evidence is None else evidence,
    )


def _scored(*rows: Prediction) -> Scored:
    return apply_decision(rows, DECISION)


def _video(path: Path, n_frames: int = 20) -> None:
    """A clip whose picture goes from red to blue halfway."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 640, 480, "yuv420p"
        for i in range(n_frames):
            picture = np.zeros((480, 640, 3), np.uint8)
            picture[..., 0 if i < n_frames // 2 else 2] = 255
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())


def test_the_picked_rows_are_what_their_heading_says() -> None:
    margins = np.random.default_rng(0).normal(0, 3, 100)
    rows = [_row(i, float(m), positive=i % 3 == 0) for i, m in enumerate(margins)]
    rows[7] = _row(7, 0.0, True, error="gone")
    rows[8] = dataclasses.replace(rows[8], label=None)
    scored = _scored(*rows)
    picked = pick_clips(scored, per_kind=4)
    said = scored.p >= 0.5
    assert [said[i] for i in picked["right"]] == [True, True, False, False]
    assert all(said[i] == scored.labels[i] for i in picked["right"])
    judged = [i for i in range(100) if i not in (7, 8)]
    errors = sorted((i for i in judged if said[i] != scored.labels[i]), key=lambda i: -abs(margins[i]))
    assert picked["wrong"] == errors[:4]
    assert picked["failed"] == [7]


def test_one_video_does_not_fill_the_page_while_there_are_others() -> None:
    rows = [_row(i, 9.0 - i / 10, False, evidence="same" if i < 8 else f"other {i}") for i in range(10)]
    assert pick_clips(_scored(*rows), per_kind=4)["wrong"] == [0, 8, 9, 1]


def test_evidence_of_every_kind_is_shown(tmp_path: Path) -> None:
    _video(tmp_path / "clip.mp4")
    PILImage.new("RGB", (400, 300), "green").save(tmp_path / "still.png")
    pieces = (VideoSegment("clip.mp4", 0, 2), Image("still.png"), Passage("read"), Transcript("heard", 0, 1.5))
    (clip,) = make_clips(_scored(_row(0, 2.0, True, evidence_key(pieces))), tmp_path)
    video, still, passage, transcript = clip.exhibits
    assert [len(e.images) for e in clip.exhibits] == [4, 1, 0, 0]
    assert [passage.text, transcript.text] == ["read", "heard"]
    assert [e.caption for e in clip.exhibits] == [
        "clip.mp4, 0.0–2.0 s",
        "still.png",
        "passage",
        "transcript, 0.0–1.5 s",
    ]
    assert video.images[0] == video.images[1] != video.images[2] == video.images[3]  # red, then blue
    assert all(image.startswith("data:image/jpeg;base64,") for image in (*video.images, *still.images))
    assert (clip.kind, clip.verdict, clip.label, clip.p) == ("right", "supported", "supported", sigmoid(2.0))


def test_what_cannot_be_shown_says_why() -> None:
    gone = evidence_key((VideoSegment("gone.mp4", 0, 2), Image("gone.png"), VideoSegment("far.mp4", absent=True)))
    for evidence, problems in ((gone, ["gone.mp4", "gone.png", "absent"]), ("not JSON", ["Expecting value"])):
        (clip,) = make_clips(_scored(_row(0, 2.0, True, evidence)), media_root=None)
        assert len(clip.exhibits) == len(problems)
        assert all(part in e.problem for part, e in zip(problems, clip.exhibits, strict=True))


def test_a_failed_row_has_a_reason_and_no_verdict() -> None:
    (clip,) = make_clips(_scored(_row(0, 0.0, True, error="clip.mp4: cannot be decoded")), media_root=None)
    assert (clip.kind, clip.verdict, clip.error) == ("failed", "", "clip.mp4: cannot be decoded")
    assert math.isnan(clip.p)
