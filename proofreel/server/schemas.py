"""What the routes take and give, for validation and for the OpenAPI page. Evidence is that of `core/pairs.py`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Strict(BaseModel):
    """No unknown keys, no conversions, no NaN."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class VideoPiece(Strict):
    """The span [start_s, end_s] of a video below the media root; without `end_s` to the end of the file."""

    kind: Literal["video"]
    path: str
    start_s: Seconds = 0.0
    end_s: Seconds | None = None


class TranscriptPiece(Strict):
    """What is said in a span, as text."""

    kind: Literal["transcript"]
    text: str
    start_s: Seconds | None = None
    end_s: Seconds | None = None


class ImagePiece(Strict):
    """One image file below the media root."""

    kind: Literal["image"]
    path: str


class PassagePiece(Strict):
    """A piece of reference text."""

    kind: Literal["passage"]
    text: str


Piece = Annotated[VideoPiece | TranscriptPiece | ImagePiece | PassagePiece, Field(discriminator="kind")]


class ScoreRequest(Strict):
    """K claims about one evidence, whose pieces are judged together."""

    claims: list[str] = Field(min_length=1, description="one sentence each")
    evidence: list[Piece] = Field(min_length=1)
    contexts: list[str | None] | None = Field(None, description="the passage each claim was taken from")
    prior: float | None = Field(None, gt=0, lt=1, description="share of supported claims where the answers are used")
    operating_point: str | None = Field(None, description="name of the threshold that labels; the shipped default")


class VerdictAnswer(BaseModel):
    """One claim's verdict; on failure `error` says why and the numbers are null."""

    p_supported: float | None
    margin: float | None
    label: Literal["supported", "not_supported"] | None
    answer: str | None = None
    error: str | None = None
    note: str | None = None
    route: str = "whole"
    windows: list[WindowAnswer] = []


class WindowAnswer(BaseModel):
    """A part of a long video, or one of several videos, and its own verdict."""

    path: str
    start_s: float
    end_s: float | None
    verdict: VerdictAnswer


class ScoreAnswer(BaseModel):
    """Verdicts in the order of the claims."""

    verdicts: list[VerdictAnswer]
    fingerprint: str = Field(description="of the verifier directory")
    operating_point: str | None
    threshold: float | None = Field(description="on p_supported")
    notes: list[str] = []


class CueGiven(Strict):
    """What is said in a span of seconds."""

    start_s: Seconds
    end_s: Seconds
    text: str


class AttributeRequest(Strict):
    """A claim and what it cites. Without `citations` they stand in the claim, and are taken out of it."""

    claim: str
    citations: str | list[str] | None = Field(None, description='such as "(visual, 0:05-0:09; audio, 0:07)"')
    video: str | None = Field(None, description="path below the media root that visual citations point into")
    transcript: list[CueGiven] | None = Field(None, description="what audio citations point into")
    context: str | None = None
    prior: float | None = Field(None, gt=0, lt=1)
    operating_point: str | None = None


class CitationAnswer(BaseModel):
    """One citation: what it stands for, or the problem why it was not judged; its verdicts alone and left out."""

    citation: str
    evidence: dict[str, Any] | None
    problem: str | None
    problem_kind: str | None
    same_as: int | None
    note: str | None
    alone: VerdictAnswer | None
    without: VerdictAnswer | None
    relevant: bool | None
    necessary: bool | None


class AttributeAnswer(BaseModel):
    """Recall is the verdict on all citations together; `is_complete` says whether it rests on every one."""

    claim: str
    recall: VerdictAnswer
    is_complete: bool
    citations: list[CitationAnswer]
    fingerprint: str
    operating_point: str | None
    threshold: float | None


class ErrorDetail(BaseModel):
    """`<where>: <what is wrong>, got <value>; <what to do>`, and its class."""

    message: str
    type: str
    param: str | None = None
    code: int


class ErrorAnswer(BaseModel):
    """Every answer with a status of 400 or above."""

    error: ErrorDetail


class Message(BaseModel):
    """A chat message; `content` is text, or parts of type text, video_url and image_url."""

    role: str
    content: str | list[dict[str, Any]] | None = None


class ChatRequest(BaseModel):
    """The part of OpenAI's request that means something here; other keys are accepted and have no effect."""

    messages: list[Message] = Field(min_length=1)
    model: str = ""
    logprobs: bool | None = False
    top_logprobs: int | None = Field(None, ge=0, le=20)
    n: int | None = Field(1, ge=1, le=1)
    stream: bool | None = False
