"""What the routes take and give, for validation and for the OpenAPI page. Evidence is that of `core/pairs.py`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, TypeAdapter

MAX_FRAMES = 4096
"""Of one piece of evidence: a verifier looks at fewer, and each is a file that is opened."""

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Strict(BaseModel):
    """No unknown keys, no conversions, no NaN."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class VideoPiece(Strict):
    """The span [start_s, end_s] of a video: its path below the media root, `upload:NAME`, or a data URL.

    Without `end_s` to the end of the file.
    """

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
    """One image: its path below the media root, `upload:NAME`, or a data URL."""

    kind: Literal["image"]
    path: str


class PassagePiece(Strict):
    """A piece of reference text."""

    kind: Literal["passage"]
    text: str


class FramesPiece(Strict):
    """Frames of a video that were sampled already: one image each, as in an image piece, and when each is shown."""

    kind: Literal["frames"]
    paths: list[str] = Field(min_length=2, max_length=MAX_FRAMES)
    times_s: list[Seconds] = Field(min_length=2, max_length=MAX_FRAMES)
    end_s: Seconds | None = None


Piece = Annotated[VideoPiece | TranscriptPiece | ImagePiece | PassagePiece | FramesPiece, Field(discriminator="kind")]

PIECE: TypeAdapter[Any] = TypeAdapter(Piece)


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
    """Recall is the verdict on all citations together, by the surest of them or all in one prompt; `is_complete` says
    whether it rests on every one, and `contradiction` where one prompt denies what a citation alone says.
    """

    claim: str
    recall: VerdictAnswer
    is_complete: bool
    contradiction: str | None = None
    citations: list[CitationAnswer]
    fingerprint: str
    operating_point: str | None
    threshold: float | None


class FaultAnswer(BaseModel):
    """One thing that is wrong with a request, and its place there, such as `evidence[1].path`."""

    where: str
    message: str


class ErrorDetail(BaseModel):
    """`<where>: <what is wrong>, got <value>; <what to do>`, a line for each fault, and its class."""

    message: str
    type: str
    param: str | None = None
    code: int
    faults: list[FaultAnswer] = []


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


class Loose(BaseModel):
    """A request in another server's form: what means nothing here is accepted and has no effect."""

    model: str | None = None
    use_activation: bool | None = Field(None, description="false: the score is the margin, not the probability")
    activation: bool | None = None
    softmax: bool | None = None
    raw_scores: bool = Field(False, description="true: the score is the margin, not the probability")

    @property
    def raw(self) -> bool:
        """Whether margins are wanted in place of probabilities."""
        return self.raw_scores or False in (self.use_activation, self.activation, self.softmax)


class VllmScoreRequest(Loose):
    """vLLM's score: claims and documents, 1:1, 1:N, N:1 or N:N. A document is a text, or `{content: [parts]}`."""

    text_1: Any = Field(validation_alias=AliasChoices("text_1", "data_1", "queries"), description="claims")
    text_2: Any = Field(
        validation_alias=AliasChoices("text_2", "data_2", "documents", "items"), description="evidence of each"
    )


VLLM_KEYS = frozenset({"text_1", "data_1", "queries", "text_2", "data_2", "documents", "items"})


class RerankRequest(Loose):
    """A claim as `query`, and `documents` (Cohere's, Jina's and vLLM's form) or `texts` (TEI's)."""

    query: Any
    documents: Any = None
    texts: Any = None
    top_n: int | None = Field(None, ge=0, description="how many results; none or 0: all")
    return_documents: bool | None = None
    return_text: bool = False


class PredictRequest(Loose):
    """TEI's predict: `[claim, text]`, or a list of such pairs."""

    inputs: Any
