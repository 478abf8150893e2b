"""How much of its start an encoder has kept: in h, in a table of symbols, in its weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.diagnostics.geometry.summary import overlap
from chiaroscuro.measures import linear_agreement

if TYPE_CHECKING:
    from chiaroscuro.diagnostics.assembly.measuring import Context

__all__ = ["keeps_statistics", "of_symbols", "start_measures"]


def start_measures(embeddings: Embeddings, context: Context, some: np.ndarray) -> dict[str, float]:
    """Return `untrained_agreement`, `start_overlap` and `encoder_overlap`, as far as each is there.

    None of them for a frozen encoder, which is its start by construction. `start_overlap` is that
    of all rows of a table, or of h of a network without batch norm: running statistics alone move
    h, with all weights equal.

    Args:
        embeddings: with h and the layer `untrained`, if there are any.
        context: with the encoder after and before training, if it is known.
        some: rows to use.
    """
    model, first = context.model, context.first_model
    begun = model if first is None else first  # an average of weights asks for no gradient
    if begun is not None and not any(p.requires_grad for p in begun.parameters()):
        return {}
    numbers: dict[str, float] = {}
    h, h0 = embeddings.h, embeddings.layers.get("untrained")
    if h is not None and h0 is not None:
        h, h0 = h[some], h0[some]
        numbers["untrained_agreement"] = linear_agreement(h, h0)
        moved = begun is not None and keeps_statistics(begun)
        if h.shape == h0.shape and not moved and not of_symbols(context.inputs):
            two = (np.asarray(x, dtype=np.float64) for x in (h, h0))
            numbers["start_overlap"] = overlap(*(x - x.mean(axis=0) for x in two))
    if model is None or first is None:
        return numbers
    both = list(zip(model.parameters(), first.parameters(), strict=True))
    pairs = [(w.detach(), w0.detach()) for w, w0 in both if w0.requires_grad and w0.ndim > 1]
    if pairs:
        numbers["encoder_overlap"] = _cosine(pairs)
    if len(both) == len(pairs) == 1 and of_symbols(context.inputs):  # the one weight is a table
        numbers["start_overlap"] = numbers["encoder_overlap"]
    return numbers


def of_symbols(inputs: Any) -> bool:
    """Return whether samples are symbols, one whole number each: the same row for the same symbol.

    Example:
        >>> of_symbols(np.arange(3)), of_symbols(np.zeros((3, 2))), of_symbols(None)
        (True, False, False)
    """
    return inputs is not None and inputs.ndim < 2 and np.asarray(inputs).dtype.kind in "iu"


def keeps_statistics(module: nn.Module) -> bool:
    """Return whether a module normalises by statistics that it keeps, as a batch norm does.

    Example:
        >>> keeps_statistics(nn.BatchNorm1d(3)), keeps_statistics(nn.LayerNorm(3))
        (True, False)
    """
    return any(getattr(one, "running_mean", None) is not None for one in module.modules())


def _cosine(pairs: list[tuple[Tensor, Tensor]]) -> float:
    """<w, w0> / (|w| |w0|), tensor by tensor; 0 where one of them is 0."""
    dot = sum(float((w.double() * w0.double()).sum()) for w, w0 in pairs)
    w, w0 = (sum(float(pair[k].double().square().sum()) for pair in pairs) for k in (0, 1))
    return dot / math.sqrt(w * w0) if w * w0 else 0.0
