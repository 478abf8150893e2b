"""How much of its start a training has kept: in h, in a table of symbols, in weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.diagnostics.geometry.summary import overlap
from chiaroscuro.measures import linear_agreement

if TYPE_CHECKING:
    from chiaroscuro.diagnostics.assembly.measuring import Context

__all__ = ["keeps_statistics", "of_symbols", "start_measures"]

TURNED = 1e-9
"""1 less the cosine of a row with its start, up to which only decay has shortened it."""

Pair = tuple[Tensor, Tensor]


def start_measures(embeddings: Embeddings, context: Context, some: np.ndarray) -> dict[str, float]:
    """Return `untrained_agreement` and the overlaps with the start, as far as each is there.

    None of them for a frozen encoder, which is its start by construction. `start_overlap` is that
    of the rows of a table that training moved, or of h of a network without batch norm: running
    statistics alone move h, with all weights equal. What is not finite is left out.

    Args:
        embeddings: with h and the layer `untrained`, if there are any.
        context: with encoder and projector after and before training, if they are known.
        some: rows to use.
    """
    projector = _large(_trained(context.projector, context.first_projector))
    # one matrix is a linear projector; deeper ones stay near their start in healthy runs too
    numbers = {"projector_overlap": _cosine(projector)} if len(projector) == 1 else {}
    numbers |= _of_encoder(embeddings, context, some)
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def of_symbols(inputs: Any) -> bool:
    """Return whether samples are symbols, one whole number each: the same row for the same symbol.

    Example:
        >>> of_symbols(np.arange(3)), of_symbols([3, 1]), of_symbols(np.zeros((3, 2)))
        (True, True, False)
        >>> of_symbols(torch.arange(3)), of_symbols(torch.zeros(3)), of_symbols(None)
        (True, False, False)
    """
    if inputs is None:
        return False
    if isinstance(inputs, Tensor):  # on any device, of any type
        whole = not (inputs.is_floating_point() or inputs.is_complex())
        return inputs.ndim < 2 and whole and inputs.dtype != torch.bool
    array = np.asarray(inputs)
    return array.ndim < 2 and array.dtype.kind in "iu"


def keeps_statistics(module: nn.Module) -> bool:
    """Return whether a module normalises by statistics that it keeps, as a batch norm does.

    Example:
        >>> keeps_statistics(nn.BatchNorm1d(3)), keeps_statistics(nn.LayerNorm(3))
        (True, False)
    """
    return any(getattr(one, "running_mean", None) is not None for one in module.modules())


def _of_encoder(embeddings: Embeddings, context: Context, some: np.ndarray) -> dict[str, float]:
    begun = context.model if context.first_model is None else context.first_model
    if begun is not None and not any(p.requires_grad for p in begun.parameters()):
        return {}
    moved = begun is not None and keeps_statistics(begun)
    numbers = _of_rows(embeddings, some, alike=not moved and not of_symbols(context.inputs))
    pairs = _trained(context.model, context.first_model)
    if sum(w.numel() for w, _ in pairs) > 1:  # of one number there is no direction
        numbers["encoder_turned"] = max(1 - _cosine(pairs), 0.0)  # NaN stays
    if large := _large(pairs):
        numbers["encoder_overlap"] = _cosine(large)
    if len(pairs) == len(large) == 1 and of_symbols(context.inputs):  # the one weight is a table
        numbers["start_overlap"] = _cosine([_turned(*large[0])])
    return numbers


def _of_rows(embeddings: Embeddings, some: np.ndarray, alike: bool) -> dict[str, float]:
    """What h has of h before training; its cosine only where both are `alike` but for weights."""
    h, h0 = embeddings.h, embeddings.layers.get("untrained")
    if h is None or h0 is None:
        return {}
    h, h0 = h[some], h0[some]
    numbers = {"untrained_agreement": min(linear_agreement(h, h0), 1.0)}
    if alike and h.shape == h0.shape:
        two = (np.asarray(x, dtype=np.float64) for x in (h, h0))
        numbers["start_overlap"] = overlap(*(x - x.mean(axis=0) for x in two))
    return numbers


def _trained(module: nn.Module | None, first: nn.Module | None) -> list[Pair]:
    """Trained parameters after and before, in float64; none where they are not the same ones.

    The first module says which are trained: an average of weights asks for no gradient.
    """
    if module is None or first is None:
        return []
    now, then = list(module.parameters()), list(first.parameters())
    unknown = any(is_lazy(p) or p.is_meta for p in (*now, *then))
    if unknown or [p.shape for p in now] != [p.shape for p in then]:
        return []
    both = zip(now, then, strict=True)
    return [(_numbers(w), _numbers(w0)) for w, w0 in both if w0.requires_grad]


def _numbers(w: Tensor) -> Tensor:
    w = w.detach().cpu()
    return (torch.view_as_real(w) if w.is_complex() else w).double()


def _large(pairs: list[Pair]) -> list[Pair]:
    """Weights but biases and norms."""
    return [pair for pair in pairs if pair[0].ndim > 1]


def _turned(w: Tensor, w0: Tensor) -> Pair:
    """The rows that training moved, all if none: without a gradient they are only shortened."""
    dot, sizes = (w * w0).sum(dim=1), w.norm(dim=1) * w0.norm(dim=1)
    moved = ~(dot >= (1 - TURNED) * sizes)
    return (w[moved], w0[moved]) if moved.any() else (w, w0)


def _cosine(pairs: list[Pair]) -> float:
    """<w, w0> / (|w| |w0|) of all tensors as one vector; 0 where one of them is 0."""
    dot = sum(float((w * w0).sum()) for w, w0 in pairs)
    w, w0 = (sum(float(pair[k].square().sum()) for pair in pairs) for k in (0, 1))
    return dot / math.sqrt(w * w0) if w * w0 else 0.0
