"""Several views in a row."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from chiaroscuro.errors import need
from chiaroscuro.views.view import View, record

__all__ = ["Chain"]


class Chain(View):
    """Apply views one after the other, each with its own random numbers.

        x_v = T_m(... T_2(T_1(x)))

    Relations: a chain of one view is another draw of that view; a member's numbers do not depend
    on the others, only on its place.

    Args:
        views: first to last.

    Example:
        >>> import torch
        >>> from chiaroscuro.views import Jitter, Mask
        >>> chain = Chain(Jitter(noise=0.1), Mask(p=0.5))
        >>> x, parameters = chain(torch.zeros(2, 4), ids=[0, 1])
        >>> parameters.dtype.names, parameters["1"]["hidden"].shape
        (('0', '1'), (2, 4))
    """

    def __init__(self, *views: View):
        need(
            len(views) > 0 and all(isinstance(view, View) for view in views),
            lambda: (
                "`Chain` needs at least one view; received "
                f"({', '.join(type(view).__name__ for view in views)})."
            ),
        )
        self.views = views

    def __call__(
        self, batch: Any, ids: Any, seed: int = 0, epoch: int = 0, view: int = 0
    ) -> tuple[Any, np.ndarray]:
        """Return what the last view makes, and the parameters of all under "0", "1", ..."""
        n, rows = len(ids), {}
        for place, member in enumerate(self.views):
            batch, rows[str(place)] = member(batch, ids, _seed(seed, place), epoch, view)
        return batch, record(n, **rows)

    def plain(self, batch: Any) -> Any:
        """Return what every member does to all samples alike, first to last."""
        for member in self.views:
            batch = member.plain(batch)
        return batch


def _seed(seed: int, place: int) -> int:
    digest = hashlib.sha256(f"chain {seed} {place}".encode()).digest()
    return int.from_bytes(digest[:8], "little")
