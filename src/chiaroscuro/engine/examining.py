"""What a diagnosis looks at: embeddings of some rows, of two views of each, and what made them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from chiaroscuro.artifacts import Embeddings, Run
from chiaroscuro.data import Dataset, open_data
from chiaroscuro.engine.batches import Pairs, plain, spaced
from chiaroscuro.engine.embedding import embed, load_networks
from chiaroscuro.engine.networks import Networks
from chiaroscuro.engine.settings import Settings
from chiaroscuro.engine.snapshots import two_views
from chiaroscuro.errors import need
from chiaroscuro.views import TokenSplit

__all__ = ["Look", "contrast_of", "examine", "inputs_of", "look", "view_parameters"]

ROWS = 2048


def examine(run: Run | str | os.PathLike, rows: int = ROWS) -> Embeddings:
    """Embeddings of rows of the run's data, both sides of its split, with two views of each.

    Holds what `embed` holds, the untrained network's among it, and `h1 h2 z1 z2` of the views that
    training draws. No network of pairs of pictures and texts has other views than its two sides;
    and where the first encoder takes a symbol out of a sequence, there are the two views alone.

    Args:
        run: or its folder; it has saved at least once.
        rows: at most so many, evenly spaced.

    Example:
        >>> import tempfile
        >>> from chiaroscuro.engine import read_settings, train
        >>> small = "network.encoder='ResNet(9, 0.125, stem=\\"strided\\")'", "epochs=1"
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sorted(examine(train(read_settings("digits", small), folder), 20).arrays())[3:8]
        ['factors', 'h', 'h1', 'h2', 'ids']
    """
    run = run if isinstance(run, Run) else Run.open(run)
    need(rows >= 2, lambda: f"`examine(run, rows)` needs at least 2 rows; received {rows}.")
    settings = Settings.of(run.settings())
    data = spaced(open_data(settings.data.source), rows)
    if _takes_symbols(settings):
        return _pairs_alone(load_networks(run), data, settings)
    found = embed(run, data)
    if found.z1 is not None:
        return found
    known: dict[str, Any] = {name: value for name, value in vars(found).items() if name != "layers"}
    return Embeddings(
        **{**known, **two_views(load_networks(run), data, settings)}, layers=found.layers
    )


@dataclass(frozen=True, eq=False)
class Look:
    """Embeddings of rows and of two views of each, and what made the views, first and second.

    `first` and `second` are structured arrays as views return them, or None.
    """

    embeddings: Embeddings
    first: np.ndarray | None
    second: np.ndarray | None


def look(networks: Networks, settings: Settings, rows: int = ROWS) -> Look:
    """What `examine` sees of a run, of networks at any moment of a training.

    Args:
        networks: in evaluation mode, before, while or after they learn.
        settings: of the training.
        rows: at most so many of both sides of the split, evenly spaced.

    Example:
        >>> from chiaroscuro.engine import build, read_settings
        >>> small = "network.encoder='ResNet(9, 0.125, stem=\\"strided\\")'", "views.fresh=false"
        >>> settings = read_settings("digits", [*small, "views.first=SimCLR(size=32)"])
        >>> seen = look(build(settings.network, 0).eval(), settings, 20)
        >>> seen.embeddings.h2.shape, seen.second["hue"].shape
        ((20, 64), (20,))
    """
    data = spaced(open_data(settings.data.source), rows)
    made = _made(settings, data)
    first, second = (None, None) if made is None else made
    if _takes_symbols(settings):
        return Look(_pairs_alone(networks, data, settings), first, second)
    found = embed(networks, data, views=settings.views)
    known: dict[str, Any] = {name: value for name, value in vars(found).items() if name != "layers"}
    if found.z1 is None:
        known |= two_views(networks, data, settings)
    return Look(Embeddings(**known, layers=found.layers), first, second)


def _takes_symbols(settings: Settings) -> bool:
    """Whether the first encoder takes one token of a sequence, so that no whole sample fits it."""
    return isinstance(settings.views.objects()[0], TokenSplit)


def _pairs_alone(networks: Networks, data: Dataset, settings: Settings) -> Embeddings:
    """The two views, and what is known of the rows."""
    known: dict[str, Any] = dict(vars(embed(nn.Identity(), data)))  # its h are the tokens
    del known["h"], known["layers"]
    return Embeddings(**{**known, **two_views(networks, data, settings)})


def view_parameters(settings: Settings, rows: int = ROWS) -> tuple[np.ndarray, np.ndarray] | None:
    """What made the two views that `look` and `examine` see, of the first and of the second.

    Args:
        settings: of the training.
        rows: as for `examine`.
    """
    return _made(settings, spaced(open_data(settings.data.source), rows))


def _made(settings: Settings, data: Dataset) -> tuple[np.ndarray, np.ndarray] | None:
    made = Pairs.of(settings, data).parameters(np.arange(len(data)), 0)
    return None if made is None else (made[0], made[1])


def inputs_of(settings: Settings, rows: int = ROWS, most: int = 64) -> Tensor:
    """The first samples that `examine` sees, as the first encoder takes them.

    Args:
        settings: of the training.
        rows: as for `examine`.
        most: so many at most.
    """
    data = spaced(open_data(settings.data.source), rows)
    few = np.arange(min(most, len(data)))
    if _takes_symbols(settings):
        return Pairs.of(settings, data)(few, 0)[0]
    return plain(data, few, 0, settings.views.objects()[0])


def contrast_of(settings: Settings) -> Any:
    """The objective, if it has a kernel, negatives and anchors: None for those without.

    Example:
        >>> from chiaroscuro.engine import read_settings
        >>> contrast_of(read_settings("simclr")), contrast_of(read_settings("vicreg"))
        (InfoNCE(kernel=Cosine(tau=0.5), negatives=AllButSelf(), anchors='both'), None)
    """
    objective = settings.make_objective()
    whole = all(hasattr(objective, name) for name in ("kernel", "negatives", "anchors"))
    return objective if whole else None
