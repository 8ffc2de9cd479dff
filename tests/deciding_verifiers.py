"""Verifiers with a decision made by hand, for the tests of asking: a calibration, two operating points and a band."""

import dataclasses
from pathlib import Path
from typing import Any

from proofreel.core.prompt import Prompt
from proofreel.models.backbones.families import vision_layout
from proofreel.models.backbones.load import load_backbone, load_processor
from proofreel.models.decision.calibration import Calibration
from proofreel.models.decision.thresholds import AbstainBand, Decision, OperatingPoint
from proofreel.models.directory.load import Parts
from proofreel.models.engine.heads import Head, NextToken
from proofreel.models.inputs.chat_text import LabelWords
from proofreel.models.inputs.encoder import Encoder
from proofreel.models.verifier.verifier import ScoringOptions, Verifier

CALIBRATION = Calibration("platt", 30.0, -4.0, n=100, n_groups=20, positive_rate=0.5)


def point(name: str, threshold: float) -> OperatingPoint:
    return OperatingPoint(name, "f1", threshold, 0.9, tp=40, fp=10, tn=40, fn=10, positive_rate=0.5)


def decision(calibration: Calibration = CALIBRATION, low: float = 0.3, high: float = 0.7) -> Decision:
    band = AbstainBand(high, low, "selective_accuracy", 0.9, 30, 5, 30, 5, 15, 15)
    return Decision(calibration, (point("balanced", 0.5), point("strict", 0.9)), "balanced", band)


def maker(base: Path, sampling: Any, media: Path) -> Any:
    """A function that makes verifiers of one network, with the options it is given."""
    model = load_backbone(base).eval()
    encoder = Encoder(load_processor(base), vision_layout(model.config), Prompt(), sampling)
    readout = NextToken(LabelWords.of(Prompt(), encoder.tokenizer))
    return lambda **options: verifier_of(model, encoder, readout, media_root=media, **options)


def verifier_of(model: Any, encoder: Encoder, head: Head, **options: Any) -> Verifier:
    """A verifier of a network; `options` are fields of `Parts` and of `ScoringOptions`."""
    of_parts = {field.name: options.pop(field.name) for field in dataclasses.fields(Parts) if field.name in options}
    return Verifier(Parts(model, encoder, head, **of_parts), ScoringOptions(**options))
