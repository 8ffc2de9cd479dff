"""What the origins of rows are called on pages that people read, and what each one means.

Importers and makers of negatives write origins as keys (`altered_claim_A`); users may write any. Apart from the makers
because importers declare origins too.
"""

from __future__ import annotations

ORIGIN_NAMES: dict[str, tuple[str, str]] = {
    "annotated": ("annotated", "the claim and its label as people annotated them"),
    "negative_annotated": ("annotated as false", "a false claim that came with the annotations"),
    "distractor": ("wrong answer option", "a wrong answer of a multiple-choice question, written as a claim"),
    "non_clue": ("right answer elsewhere", "a right answer, asked of spans of its video that do not hold its clue"),
    "implicit_negative": (
        "listed, not marked as support",
        "a video listed for the claim's topic that nobody marked as supporting the claim",
    ),
    "prediction": ("claim of a generated text", "a claim that a system wrote and nobody labelled"),
    "generated": ("claim of a generated text", "a claim that a model wrote"),
    "model_judged": ("labelled by a model", "a claim whose label is a model's judgment, not a person's"),
    "chat": ("from chat rows", "read back from rows of a chat format"),
    "swapped_evidence": ("another group's evidence", "a true claim, asked of evidence of another group"),
    "altered_claim": ("value replaced", "a true fact with its value replaced by another of the same role"),
    "altered_claim_A": ("action replaced", "a true phrase with its verb replaced (type A)"),
    "altered_claim_B": ("object replaced", "a true phrase with its object replaced (type B)"),
    "altered_claim_C": ("tool replaced", "a true phrase with its tool replaced (type C)"),
    "altered_claim_D": ("location replaced", "a true phrase with its location replaced (type D)"),
    "altered_claim_E": ("event replaced", "a true phrase with verb and object replaced (type E)"),
    "other_time": ("another time", "a true claim, asked of another time of its video"),
    "shifted_span": ("shifted in time", "a true claim, asked of a span just beside its own"),
    "dropped_citation": ("evidence left out", "a true claim with one of its pieces of evidence left out"),
    "swapped_citation": ("evidence exchanged", "a true claim with one piece of its evidence from another group"),
    "swapped_visual": ("pictures exchanged", "a true claim with everything seen taken from another group"),
    "swapped_text": ("text exchanged", "a true claim with everything said or written taken from another group"),
}
"""Origin: its name, and one clause that says what its rows are."""


def name_origin(origin: str) -> tuple[str, str]:
    """Name and meaning of an origin; one that users made up keeps its name and has no meaning."""
    if origin in ORIGIN_NAMES:
        return ORIGIN_NAMES[origin]
    altered = origin.replace("altered_by_model", "altered_claim")
    if origin.startswith("altered_by_model") and altered in ORIGIN_NAMES:
        name, meaning = ORIGIN_NAMES[altered]
        return f"{name}, by a model", f"{meaning}, the new words from a language model"
    if kind := _after("negative_", origin):
        kind = kind.replace("_", " ")
        return kind, f"a false claim that came with the annotations, of the kind they call “{kind}”"
    if replaced := _after("replaced_", origin):
        parts = " and ".join(replaced.split("_"))
        return f"{parts} replaced", f"the evidence's {parts} taken from another clip"
    return origin, ""


def _after(prefix: str, text: str) -> str:
    return text.removeprefix(prefix) if text.startswith(prefix) else ""
