"""Predictions: their file, and scoring a data set with one process or several."""

from typing import TYPE_CHECKING

from ...core import on_first_use

if TYPE_CHECKING:
    from .claim_store import ClaimStore, store_claims
    from .controls import CONTROLS, hide_evidence, mismatch_evidence, mismatch_sound, remove_sound
    from .distributed import Share, blocks_folder, own_device, score_in_bulk
    from .out_of_fold import join_folds
    from .predictions import (
        CROSS_FITTED,
        Prediction,
        groups_of,
        labels_of,
        margins_of,
        read_predictions,
        refuse_teacher_file,
        write_predictions,
    )
    from .ray_blocks import (
        Stages,
        VerifierFacts,
        facts_of,
        judge_of_engine,
        packed,
        quiet_data,
        ray_cluster,
        ray_engine,
    )
    from .ray_options import RayWorkers, add_ray_options, ray_workers
    from .score import predict, question_of, score_to
    from .scored_rows import with_every_row, write_scored_rows

__all__ = [
    "CONTROLS",
    "CROSS_FITTED",
    "ClaimStore",
    "Prediction",
    "RayWorkers",
    "Share",
    "Stages",
    "VerifierFacts",
    "add_ray_options",
    "blocks_folder",
    "facts_of",
    "groups_of",
    "hide_evidence",
    "join_folds",
    "judge_of_engine",
    "labels_of",
    "margins_of",
    "mismatch_evidence",
    "mismatch_sound",
    "own_device",
    "packed",
    "predict",
    "question_of",
    "quiet_data",
    "ray_cluster",
    "ray_engine",
    "ray_workers",
    "read_predictions",
    "refuse_teacher_file",
    "remove_sound",
    "score_in_bulk",
    "score_to",
    "store_claims",
    "with_every_row",
    "write_predictions",
    "write_scored_rows",
]

__getattr__ = on_first_use(__name__, __file__)
