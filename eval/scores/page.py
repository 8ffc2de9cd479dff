"""The page of a score: systems side by side, and their responses with each claim's verdict and what it cites.

Every score's command builds a `ScorePage` from its result and calls `write_page(OUT / "page.html", page, media_root)`:

    page = ScorePage(
        title="MURGAT-Score",
        systems={"A": {"murgat": score}, "B": {"murgat": score}},       # Score with interval
        differences={"B - A": {"murgat": paired_score}},                # empty for one system
        responses=[PageResponse("A", "video 7", sentences, scores), PageResponse("B", "video 7", ...)],
    )

Responses of one `unit` stand side by side. A claim has the colour, the sign and the word of its first judgment:
supported, not supported, failed (with its reason), or not judged. Beside it is what it cites: frames, images or text;
media that are not there are named in place. The page is one file that loads nothing; all text is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...core import Evidence, evidence_key
from ...data_prep.media import FrameSampling
from ..reports import Exhibit, Table, TableCell, caption_of, exhibit_of, template_environment
from .intervals import shown
from .judging import Judgment, Score

SAMPLING = FrameSampling(fps=1, min_frames=2, max_frames=4)
FRAMES = 3  # of a citation
PICTURES = 400  # of a page: about 3 MB
CLAIMS = 2000  # of a page
VERDICTS = {
    "supported": ("✓", "supported"),
    "unsupported": ("✗", "not supported"),
    "failed": ("!", "failed"),
    "unjudged": ("–", "not judged"),
}
"""What a verdict is called in the style sheet: its sign, its word."""


@dataclass(frozen=True)
class PageCitation:
    """What a sentence or claim cites.

    Attributes:
        text: the citation as it was written, or the source's name.
        evidence: what it stands for; empty where that is not known.
        judgment: on the claim by this alone; None: nobody was asked.
        problem: why it leads nowhere.
    """

    text: str
    evidence: tuple[Evidence, ...] = ()
    judgment: Judgment | None = None
    problem: str | None = None


@dataclass(frozen=True)
class PageClaim:
    """A claim of a response.

    Attributes:
        text: the claim.
        judgments: by what they are on ("what it cites", "the collection"); the first gives the claim its colour.
        citations: what stands beside it.
        note: anything else, such as its role.
    """

    text: str
    judgments: Mapping[str, Judgment] = field(default_factory=dict)
    citations: tuple[PageCitation, ...] = ()
    note: str = ""

    @property
    def verdict(self) -> str:
        """Of `VERDICTS`."""
        return verdict_of(next(iter(self.judgments.values()), None))


@dataclass(frozen=True)
class PageSentence:
    """A sentence of a response and its claims; `note` says why it has none, `error` what failed."""

    text: str
    claims: tuple[PageClaim, ...] = ()
    note: str = ""
    error: str | None = None


@dataclass(frozen=True)
class PageResponse:
    """What a system wrote about a unit (a topic, question, clip), and the scores of that alone."""

    system: str
    unit: str
    sentences: tuple[PageSentence, ...]
    scores: Mapping[str, Score] = field(default_factory=dict)


@dataclass(frozen=True)
class ScorePage:
    """What a page shows.

    Attributes:
        title: of the page.
        systems: by name, each with its scores by name.
        differences: paired, by what is subtracted from what ("B - A"); the scores' names are the systems'.
        responses: of all systems; those of one unit stand side by side, in the order of the systems.
        notes: what the numbers are, who judged, encoder passes.
        times, digits: how numbers are written, see `shown`.
    """

    title: str
    systems: Mapping[str, Mapping[str, Score]]
    differences: Mapping[str, Mapping[str, Score]]
    responses: Sequence[PageResponse]
    notes: Sequence[str] = ()
    times: float = 100.0
    digits: int = 1


def write_page(path: str | Path, page: ScorePage, media_root: str | Path | None = None) -> Path:
    """Write a page as one HTML file that loads nothing.

    Args:
        path: the file; its folder is made.
        page: what it shows. Of more than `CLAIMS` claims the first units stand on it, of more than `PICTURES` frames
            the first; both are said there.
        media_root: what relative paths of media start from; frames that cannot be read are named in place.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page_html(page, media_root), encoding="utf-8")
    return path


def page_html(page: ScorePage, media_root: str | Path | None = None) -> str:
    """The page's text, see `write_page`."""
    units = _units(page.responses, list(page.systems))
    kept = dict(_first_units(units))
    pictures = _Pictures(None if media_root is None else Path(media_root))
    for responses in kept.values():
        pictures.read(responses)
    left_out = f"The page shows {len(kept)} of {len(units)}; all are in result.json." if len(kept) < len(units) else ""
    return (
        template_environment(Path(__file__).parent)
        .get_template("scores.html.j2")
        .render(
            title=page.title,
            table=_table(page),
            notes=page.notes,
            units=kept,
            left_out=left_out,
            pictures=pictures,
            verdicts=VERDICTS,
            counts=_counts(page),
            verdict_of=verdict_of,
            reasons=pictures.reasons,
            written=_written,
            shown=lambda score: shown(score, page.times, page.digits),
        )
    )


def verdict_of(judgment: Judgment | None) -> str:
    """Of `VERDICTS`."""
    if judgment is None:
        return "unjudged"
    if judgment.supported is None:
        return "failed"
    return "supported" if judgment.supported else "unsupported"


def _written(judgment: Judgment | None) -> str:
    """A verdict as sign, word and probability; of a person there is none."""
    sign, word = VERDICTS[verdict_of(judgment)]
    p = math.nan if judgment is None else judgment.p_supported
    return f"{sign} {word}" + ("" if math.isnan(p) or p in (0.0, 1.0) else f" {p:.2f}")


def _table(page: ScorePage) -> Table:
    """A row per score; a column per system and per difference."""
    columns = {**page.systems, **page.differences}
    names = dict.fromkeys(name for scores in page.systems.values() for name in scores)
    rows = []
    for name in names:
        cells = [_cell(scores.get(name), page) for scores in columns.values()]
        if any(cell.text != "–" for cell in cells):
            rows.append((TableCell(name.replace("_", " ")), *cells))
    return Table("Scores", ("score", *columns), rows, tuple(page.notes))


def _cell(score: Score | None, page: ScorePage) -> TableCell:
    if score is None or math.isnan(score.low):
        return TableCell("–")
    value, _, interval = shown(score, page.times, page.digits).partition(" [")
    under = [f"[{interval}"] if interval else []
    return TableCell(value, "\n".join([*under, *([f"{score.n_failed} failed"] if score.n_failed else [])]))


def _counts(page: ScorePage) -> dict[str, dict[str, int]]:
    """Claims by verdict, of each system."""
    counts = {system: dict.fromkeys(VERDICTS, 0) for system in page.systems}
    for response in page.responses:
        for claim in (claim for sentence in response.sentences for claim in sentence.claims):
            counts.setdefault(response.system, dict.fromkeys(VERDICTS, 0))[claim.verdict] += 1
    return counts


def _units(responses: Iterable[PageResponse], systems: Sequence[str]) -> dict[str, list[PageResponse]]:
    """Responses by unit, those of a unit in the order of the systems."""
    units: dict[str, list[PageResponse]] = {}
    for response in responses:
        units.setdefault(response.unit, []).append(response)
    places = {system: place for place, system in enumerate(systems)}
    return {unit: sorted(of, key=lambda r: places.get(r.system, len(places))) for unit, of in units.items()}


def _first_units(units: Mapping[str, list[PageResponse]]) -> Iterator[tuple[str, list[PageResponse]]]:
    """Whole units until the page is full; one at least."""
    n_claims = 0
    for unit, responses in units.items():
        n_claims += sum(max(len(s.claims), 1) for r in responses for s in r.sentences)
        yield unit, responses
        if n_claims >= CLAIMS:
            return


class _Pictures:
    """Evidence as exhibits, each read once; their pictures are numbered, and stand in the style sheet once."""

    def __init__(self, media_root: Path | None) -> None:
        self._media_root = media_root
        self._exhibits: dict[str, tuple[Exhibit, tuple[int, ...]]] = {}
        self.images: list[tuple[str, int, int]] = []  # data URI, width, height

    def read(self, responses: Iterable[PageResponse]) -> None:
        """Read what responses cite."""
        for response in responses:
            for claim in (claim for sentence in response.sentences for claim in sentence.claims):
                for evidence in (piece for cite in claim.citations for piece in cite.evidence):
                    if (key := evidence_key((evidence,))) not in self._exhibits:
                        self._exhibits[key] = self._exhibit(evidence)

    def of(self, citation: PageCitation) -> list[tuple[Exhibit, tuple[int, ...]]]:
        """What a citation shows: exhibits with the numbers of their pictures."""
        return [self._exhibits[evidence_key((evidence,))] for evidence in citation.evidence]

    def reasons(self, claim: PageClaim) -> tuple[list[str], list[list[str]]]:
        """What failed, of each judgment and of each citation; what stands there already is not said again."""
        said: set[str] = set()

        def new(*reasons: str | None) -> list[str]:
            fresh = [reason for reason in dict.fromkeys(reasons) if reason and reason not in said]
            said.update(fresh)
            return fresh

        of_judgments = [" ".join(new(judgment.error)) for judgment in claim.judgments.values()]
        of_citations = []
        for citation in claim.citations:
            problems = [exhibit.problem for exhibit, _ in self.of(citation)]
            error = None if citation.judgment is None else citation.judgment.error
            fresh = new(citation.problem, error, *problems)
            of_citations.append(fresh or (["no frames, as above"] if any(problems) else []))
        return of_judgments, of_citations

    def _exhibit(self, evidence: Evidence) -> tuple[Exhibit, tuple[int, ...]]:
        if len(self.images) >= PICTURES:
            return Exhibit(caption_of(evidence), problem="the page is full: no frames"), ()
        exhibit = exhibit_of(evidence, self._media_root, SAMPLING)
        n = len(exhibit.images)
        places = range(n) if n <= FRAMES else [round(i * (n - 1) / (FRAMES - 1)) for i in range(FRAMES)]
        first = len(self.images)
        self.images += [(exhibit.images[place], *exhibit.size) for place in places]
        return exhibit, tuple(range(first, len(self.images)))
