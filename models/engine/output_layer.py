"""The output layer at verdict positions: in float32, and of the vocabulary only the rows that a head reads.

A network in half precision rounds each logit to its dtype, steps of 0.125 for logits of 16 to 32, and a margin is a
difference of two. Here the hidden state stays as the network gives it, and its products with the weights are float32.

The layer is still called by its network as a module, so what hangs on that call holds: ZeRO-3 and FSDP gather weights
for it, adapters and layers that are trained whole take part. Only what its linear layers compute is exchanged.

Shape suffixes: _N verdict positions, _V vocabulary or labels, _H hidden.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.functional import linear

_NAMES = frozenset({"lm_head", "score"})


@contextmanager
def float32_output(model: torch.nn.Module, rows: Sequence[int] | None) -> Iterator[None]:
    """Let the output layer give float32 logits, of these rows of it alone; one thread at a time for one network.

    With an adapter that needs the whole layer (DoRA divides by norms of its rows) all rows come: `rows_of` takes both.

    Args:
        model: the backbone, bare or wrapped (PEFT, DDP, DeepSpeed, FSDP).
        rows: of the output layer; None: all.
    """
    modules = [m for name, m in model.named_modules() if not _NAMES.isdisjoint(name.split("."))]
    # bitsandbytes' layers are linear ones too; none stands here (`Backbone.unquantised`), and one would run as it is.
    layers = [
        m for m in modules if isinstance(m, torch.nn.Linear) and not type(m).__module__.startswith("bitsandbytes")
    ]
    vocabulary = max((layer.out_features for layer in layers), default=0)
    if any(getattr(m, "lora_variant", None) for m in modules):
        rows = None
    with ExitStack() as stack:
        for layer in layers:
            kept = rows if layer.out_features == vocabulary else None  # not an adapter's own first matrix
            stack.enter_context(_computing(layer, functools.partial(_product, layer, kept)))
        yield


def rows_of(logits_NV: torch.Tensor, rows: Sequence[int] | None) -> torch.Tensor:
    """Logits of `rows`, from those of the whole layer or of these rows alone, in float32."""
    if rows is not None and logits_NV.shape[-1] != len(rows):
        logits_NV = logits_NV[..., list(rows)]
    return logits_NV.float()


def _product(layer: torch.nn.Linear, rows: Sequence[int] | None, x_NH: torch.Tensor) -> torch.Tensor:
    weight_VH, bias_V = layer.weight, layer.bias
    if rows is not None:
        weight_VH = weight_VH[list(rows)]
        bias_V = None if bias_V is None else bias_V[list(rows)]
    # Autocast would round both factors and the product again.
    with torch.autocast(x_NH.device.type, enabled=False):
        return linear(x_NH.float(), weight_VH.float(), None if bias_V is None else bias_V.float())


@contextmanager
def _computing(layer: torch.nn.Linear, forward: Any) -> Iterator[None]:
    """Exchange what a layer computes; hooks around it, of accelerate too, stay."""
    name = "_old_forward" if "_old_forward" in vars(layer) else "forward"
    before = vars(layer).get(name)
    setattr(layer, name, forward)
    try:
        yield
    finally:
        if before is None:
            delattr(layer, name)
        else:
            setattr(layer, name, before)
