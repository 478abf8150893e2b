"""What a diagnosis of a run looks at: embeddings of some rows, and of two views of each."""

from __future__ import annotations

import os
from typing import Any

from chiaroscuro.artifacts import Embeddings, Run
from chiaroscuro.data import open_data
from chiaroscuro.engine.batches import spaced
from chiaroscuro.engine.embedding import embed, load_networks
from chiaroscuro.engine.settings import Settings
from chiaroscuro.engine.snapshots import two_views
from chiaroscuro.errors import need

__all__ = ["contrast_of", "examine"]

ROWS = 2048


def examine(run: Run | str | os.PathLike, rows: int = ROWS) -> Embeddings:
    """Embeddings of rows of the run's data, both sides of its split, with two views of each.

    Holds what `embed` holds, the untrained network's among it, and `h1 h2 z1 z2` of the views that
    training draws. No network of pairs of pictures and texts has other views than its two sides.

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
    found = embed(run, data)
    if found.z1 is not None:
        return found
    known: dict[str, Any] = {name: value for name, value in vars(found).items() if name != "layers"}
    return Embeddings(
        **{**known, **two_views(load_networks(run), data, settings)}, layers=found.layers
    )


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
