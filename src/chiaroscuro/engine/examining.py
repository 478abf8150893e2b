"""What a diagnosis looks at: embeddings of some rows, of two views of each, and what made them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.data import Dataset
from chiaroscuro.engine.batches import Pairs, plain, spaced
from chiaroscuro.engine.embedding import Passing, embed, embed_run, opened_for, passing_of
from chiaroscuro.engine.networks import Networks
from chiaroscuro.engine.opening import open_run
from chiaroscuro.engine.snapshots import pairs_of, two_views
from chiaroscuro.errors import need
from chiaroscuro.views import TokenSplit

__all__ = ["Examined", "examine"]

ROWS = 2048
INPUTS = 64
"""Samples handed over as the encoder takes them."""


@dataclass(frozen=True, eq=False)
class Examined:
    """Embedded rows of a run, for diagnosis.

    Args:
        embeddings: of rows of its data and of two views of each, with the untrained control.
        first, second: what made the two views, as structured arrays, or None where nothing is
            recorded.
        inputs: the first of the samples, as the first encoder takes them.
    """

    embeddings: Embeddings
    first: np.ndarray | None
    second: np.ndarray | None
    inputs: Tensor


def examine(
    run: Any, rows: int = ROWS, control: bool = True, passing: Passing | None = None
) -> Examined:
    """Embed rows of a run's data, both sides of its split, and two views of each.

    The embeddings hold what `embed` holds and `h1 h2 z1 z2` of the views that training draws. A
    network of pairs of images and texts has no other views than its two sides; and where the first
    encoder takes a symbol out of a sequence, there are the two views alone.

    Args:
        run: a `Run`, its folder, or an `OpenRun`, whose networks may be those of any moment:
            `open_run(settings, networks=networks)`.
        rows: at most so many, evenly spaced.
        control: whether the untrained networks embed them too.
        passing: the device, precision, workers and ranks that compute it, as for `embed`.

    Example:
        >>> from chiaroscuro.engine import build, read_settings
        >>> small = "network.encoder='ResNet(9, 0.125, stem=\\"strided\\")'", "views.fresh=false"
        >>> settings = read_settings("digits", [*small, "views.first=SimCLR(size=32)"])
        >>> seen = examine(open_run(settings, networks=build(settings.network, 0)), 20)
        >>> seen.embeddings.h2.shape, seen.second["hue"].shape
        ((20, 64), (20,))
    """
    opened = open_run(run)
    need(rows >= 2, lambda: f"`examine(run, rows)` needs at least 2 rows; received {rows}.")
    data = spaced(opened_for(passing, lambda: opened.data), rows)
    passing = None if passing is None else passing_of(opened, passing)
    pairs, networks = pairs_of(opened, data), opened.networks
    made = pairs.parameters(np.arange(len(data)), 0)
    first, second = (None, None) if made is None else (made[0], made[1])
    few = np.arange(min(INPUTS, len(data)))
    if isinstance(opened.views[0], TokenSplit):  # no whole sample fits the first encoder
        return Examined(
            _pairs_alone(networks, data, pairs, passing), first, second, pairs(few, 0)[0]
        )
    if control:
        embeddings = embed_run(opened, data, own=False, passing=passing)
    else:
        embeddings = embed(networks, data, views=opened.views, passing=passing)
    known: dict[str, Any] = dict(vars(embeddings))
    if embeddings.z1 is None:
        known |= two_views(networks, pairs, passing)
    inputs = plain(data, few, 0, opened.views[0])
    return Examined(Embeddings(**known), first, second, inputs)


def _pairs_alone(
    networks: Networks, data: Dataset, pairs: Pairs, passing: Passing | None
) -> Embeddings:
    """Return the two views, and what is known of the rows."""
    known: dict[str, Any] = dict(vars(embed(nn.Identity(), data)))  # its h are the tokens
    del known["h"], known["layers"]
    return Embeddings(**{**known, **two_views(networks, pairs, passing)})
