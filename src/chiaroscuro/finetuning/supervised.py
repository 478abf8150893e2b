"""Train a classifier on labels: one network, some labelled rows, a fixed number of steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from chiaroscuro.data import Dataset, Order
from chiaroscuro.engine import FitOptions, Networks, Pairs, fit, plain
from chiaroscuro.finetuning.layers import freeze_but_last, rate_groups

__all__ = ["Classifier", "Rows", "Supervised", "accuracy", "fit_labels"]

BATCH = 256
"""Rows embedded at a time."""


class Classifier(nn.Module):
    """An encoder and a linear layer on top, which starts at zero.

    Args:
        encoder: from samples to (n, d).
        d: dimension of its output.
        n_classes: of the scores.

    Example:
        >>> Classifier(nn.Linear(4, 3), 3, n_classes=2)(torch.ones(5, 4))
        tensor([[0., 0.],
                [0., 0.],
                [0., 0.],
                [0., 0.],
                [0., 0.]], grad_fn=<AddmmBackward0>)
    """

    def __init__(self, encoder: nn.Module, d: int, n_classes: int):
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(d, n_classes)
        self.frozen: tuple[nn.Module, ...] = ()
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x))

    def train(self, mode: bool = True) -> Classifier:
        super().train(mode)
        for module in self.frozen:  # what does not learn keeps the statistics that it learnt with
            module.eval()
        return self


@dataclass(frozen=True, eq=False)
class Rows:
    """Samples with a class for each of some of them.

    Args:
        data: the samples.
        at: the rows.
        y: their classes, 0 to n_classes - 1.
    """

    data: Dataset
    at: NDArray[np.int64]
    y: NDArray[np.int64]


@dataclass(frozen=True)
class Supervised:
    """How a classifier is trained.

    Args:
        steps: steps of the optimiser, the same for every fraction of labels.
        batch: rows of a step; fewer where there are fewer.
        lr: of AdamW, at the head; a tenth of the steps warm up, a cosine ends at 0.
        weight_decay: 0.05 [bao2022beit, Table 9].
        layer_decay: of the rate from a layer to the one below; 0.75 [bao2022beit, Sec. 3.1]; 1 is
            none.
        layers: that learn, counted from the output; 0 is all of them.
        smoothing: of the labels, 0.1 [bao2022beit, Table 9].
    """

    steps: int = 500
    batch: int = 64
    lr: float = 1e-3
    weight_decay: float = 0.05
    layer_decay: float = 0.75
    layers: int = 0
    smoothing: float = 0.1


def fit_labels(
    model: Classifier, rows: Rows, view: Any, how: Supervised, seed: int, device: str = "auto"
) -> None:
    """Train a classifier in place: scores and targets are the two sides of a pair.

    Args:
        model: encoder and head.
        rows: labelled samples.
        view: that they are seen through; None as they are.
        how: steps, rates and decay.
        seed: seed of order, views and dropout.
        device: where.
    """
    model.frozen = tuple(freeze_but_last(model.encoder, how.layers))
    groups = rate_groups(model.encoder, model.head, how.lr, how.layer_decay, how.weight_decay)
    batch = min(how.batch, len(rows.at))
    order, pairs = Order(len(rows.at), batch, seed), Pairs(rows.data, view, view, seed=seed)
    targets = torch.eye(model.head.out_features)

    def pair(step: int) -> tuple[Tensor, Tensor]:
        epoch, number = divmod(step, len(order))
        some = order.indices(epoch, number)
        return pairs.side(rows.at[some], epoch), targets[rows.y[some]]

    fit(
        Networks([model, nn.Identity()]),
        lambda scores, target: F.cross_entropy(scores, target, label_smoothing=how.smoothing),
        map(pair, range(how.steps)),
        torch.optim.AdamW(groups),
        lambda step: _factor(step, how.steps),
        steps_per_epoch=how.steps,
        options=FitOptions(seed=seed, device=device, clip=1.0),
    )


def _factor(step: int, steps: int) -> float:
    """Rise for a tenth of the steps, then fall along a cosine."""
    warmup = max(1, steps // 10)
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


@torch.no_grad()
def accuracy(model: nn.Module, rows: Rows, view: Any) -> float:
    """Return the share of rows whose class has the largest score; views with nothing random.

    Args:
        model: in evaluation mode.
        rows: labelled samples.
        view: whose `plain` gives them their size and normalisation.
    """
    place = next(model.parameters()).device
    right = 0
    for start in range(0, len(rows.at), BATCH):
        some = slice(start, start + BATCH)
        scores = model(plain(rows.data, rows.at[some], 0, view).to(place)).cpu()
        right += int((scores.argmax(dim=1).numpy() == rows.y[some]).sum())
    return right / len(rows.at)
