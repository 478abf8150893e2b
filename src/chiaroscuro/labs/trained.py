"""Trainings inside a lab, in memory, looked at on the way: all by the library's own loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import chiaroscuro as cs

__all__ = ["fitted", "here", "linear", "scored", "trained"]


def fitted(
    network: torch.nn.Module,
    objective: Any,
    pair: Callable[[int], Any],
    steps: int,
    lr: float,
    look: Callable[[], None] | None = None,
    every: int = 0,
    falling: bool = True,
) -> torch.nn.Module:
    """Train a network by Adam on pairs that are drawn step by step, on the CPU, and return it.

    Args:
        network: trained in place; or `Networks`, with an encoder for each side.
        objective: of the two sides.
        pair: the two views of a step.
        steps: of Adam.
        lr: of its first step.
        look: called before the first step, and after every so many.
        every: steps between looks.
        falling: the rate falls to 0 by half a cosine.

    Example:
        >>> x = torch.randn(32, 3, generator=torch.Generator().manual_seed(0))
        >>> fitted(torch.nn.Linear(3, 2), cs.InfoNCE(), lambda step: (x, x + 0.1), 5, lr=0.01)
        Linear(in_features=3, out_features=2, bias=True)
    """
    learnt = [*network.parameters(), *objective.parameters()]
    adam = torch.optim.Adam(learnt, lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps) if falling else None
    each = every or steps
    if look is not None:
        with torch.no_grad():
            look()
    cs.engine.fit(
        network,
        objective,
        map(pair, range(steps)),
        adam,
        schedule,
        epochs=steps // each,
        steps_per_epoch=each,
        options=cs.engine.FitOptions(device="cpu"),
        callbacks=[] if look is None else [lambda moment: look()],
    )
    return network


def linear(W: torch.Tensor) -> torch.nn.Linear:
    """Return x -> W x as a layer that learns W.

    Example:
        >>> linear(torch.eye(2, 3))
        Linear(in_features=3, out_features=2, bias=False)
    """
    layer = torch.nn.Linear(W.shape[1], W.shape[0], bias=False, dtype=W.dtype)
    layer.weight.data.copy_(W)
    return layer


def here(source: str) -> bool:
    """Whether a data set is on this machine.

    Example:
        >>> here("digits"), here("no_such_data")
        (True, False)
    """
    try:
        cs.data.open_data(source)
    except cs.InputError:
        return False
    return True


def scored(embeddings: Any, probe: str = "ridge") -> dict[str, dict[str, float]]:
    """Accuracies of `evaluate` on the held-out side, `knn_20` and `linear`, of h and of z.

    Args:
        embeddings: with labels and a split.
        probe: "ridge", "logistic" or "sgd".

    Example:
        >>> import numpy as np
        >>> h, y = np.concatenate([np.eye(3)] * 20), np.tile(np.arange(3), 20)
        >>> seen = cs.Embeddings(h=h, labels=y, split=np.repeat([0, 1], 30))
        >>> scored(seen)["encoder"]["linear"]
        1.0
    """
    names = ("h", "z", "labels", "split")
    alone = {name: getattr(embeddings, name) for name in names}  # raw pictures are not asked here
    kept = cs.Embeddings(**{name: value for name, value in alone.items() if value is not None})
    results = cs.diagnostics.evaluate(kept, probes=[probe])["results"]
    linear = "linear" if probe == "ridge" else f"linear_{probe}"
    return {
        layer: {"knn_20": results[layer]["knn_20"], "linear": results[layer][linear]}
        for layer in ("encoder", "projector")
        if "knn_20" in results[layer]
    }


def trained(
    settings: Any,
    look: Callable[[Any, int], Any],
    epochs: Sequence[int] = (),
    data: Any = None,
) -> tuple[Any, list[Any]]:
    """Train, and return the networks with what `look` saw on the way.

    Args:
        settings: of the training; nothing is written.
        look: of the networks, in evaluation mode, and the number of epochs they have learnt.
        epochs: when to look; 0 is before the first step. The end is the caller's.
        data: in the place of those that the settings name.

    Example:
        >>> small = "network.encoder='ResNet(9, 0.125, stem=\\"strided\\")'", "epochs=1"
        >>> settings = cs.engine.read_settings("digits", small)
        >>> networks, seen = trained(settings, lambda networks, epoch: epoch, [0, 1])
        >>> networks.encoders[0].d, seen
        (64, [0, 1])
    """
    seen: list[Any] = []
    if 0 in epochs:
        seen.append(look(cs.engine.build(settings.network, settings.seed).eval(), 0))

    def callback(moment: Any) -> None:
        if moment.epoch + 1 in epochs:
            seen.append(look(moment.networks, moment.epoch + 1))

    return cs.train(settings, callbacks=[callback], data=data).networks, seen
