"""Trainings inside a lab, in memory, looked at on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import chiaroscuro as cs

__all__ = ["here", "scored", "trained"]


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
    found = cs.diagnostics.evaluate(kept, probes=[probe])["results"]
    linear = "linear" if probe == "ridge" else f"linear_{probe}"
    return {
        layer: {"knn_20": found[layer]["knn_20"], "linear": found[layer][linear]}
        for layer in ("encoder", "projector")
        if "knn_20" in found[layer]
    }


def trained(
    settings: Any, look: Callable[[Any, int], Any], epochs: Sequence[int] = ()
) -> tuple[Any, list[Any]]:
    """Train, and return the networks with what `look` saw on the way.

    Args:
        settings: of the training; nothing is written.
        look: of the networks, in evaluation mode, and the number of epochs they have learnt.
        epochs: when to look; 0 is before the first step. The end is the caller's.

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

    return cs.train(settings, callbacks=[callback]).networks, seen
