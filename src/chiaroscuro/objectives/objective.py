"""What an objective is: paired tensors in, one scalar out, and how it splits over ranks."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from chiaroscuro.errors import need
from chiaroscuro.numerics import require_finite, wide
from chiaroscuro.spec import notation, same

__all__ = ["Objective"]

Window = tuple[int, int]


class Objective(nn.Module):
    """A pure function of two paired (n, d) tensors to a scalar (abstract).

    No model, no gather, no logging, no memory bank inside. Half precision is widened to float32
    first; the result is float32 or float64.

    Declares:
        reduces: how the loss of a batch spread over several ranks is put together.
            "anchors": a sum over anchors, each against the candidates of all ranks; a rank takes
            its own anchors (`window`). "batch": a function of the whole batch; every rank computes
            it whole. "samples": a mean over samples that do not see each other.
        takes: which of `labels` and `queue` it understands.
        least: the smallest number of pairs that gives it a meaning.
    """

    reduces: str = "batch"
    takes: frozenset[str] = frozenset()
    least: int = 1

    def forward(
        self,
        z1: Tensor,
        z2: Tensor | None,
        labels: Tensor | None = None,
        queue: Tensor | None = None,
        window: Window | None = None,
    ) -> Tensor:
        """The loss of a batch of pairs.

        Args:
            z1: one view, (n, d).
            z2: the other, paired row by row.
            labels: one integer per pair, for supervised objectives.
            queue: extra candidates, (m, d), as MoCo keeps them.
            window: count only anchors start <= i < stop, still divided by the number of all: the
                values of windows that tile the batch add up to the loss.
        """
        return self.loss(*self._checked(z1, z2, labels, queue, window))

    @abstractmethod
    def loss(
        self,
        z1: Tensor,
        z2: Tensor | None,
        labels: Tensor | None,
        queue: Tensor | None,
        window: Window,
    ) -> Tensor:
        """The formula, on inputs that have been checked and widened."""

    def terms(
        self,
        z1: Tensor,
        z2: Tensor | None,
        labels: Tensor | None = None,
        queue: Tensor | None = None,
        window: Window | None = None,
    ) -> dict[str, Tensor]:
        """The loss as attraction and repulsion: loss = terms["repel"] - terms["attract"]."""
        attract, repel = self.split(*self._checked(z1, z2, labels, queue, window))
        return {"attract": attract, "repel": repel}

    def split(
        self,
        z1: Tensor,
        z2: Tensor | None,
        labels: Tensor | None,
        queue: Tensor | None,
        window: Window,
    ) -> tuple[Tensor, Tensor]:
        """Attraction and repulsion, where the objective has both."""
        name = type(self).__name__
        need(False, f"`{name}.terms` needs an objective of attraction and repulsion; `{name}` is one whole.")
        raise AssertionError  # pragma: no cover

    def _checked(
        self,
        z1: Tensor,
        z2: Tensor | None,
        labels: Tensor | None,
        queue: Tensor | None,
        window: Window | None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, Window]:
        call = type(self).__name__
        views = {"z1": z1, "z2": z2, "queue": queue}
        for name, z in views.items():
            if z is None:
                continue
            need(
                isinstance(z, Tensor) and z.is_floating_point(),
                lambda z=z, name=name: f"`{call}(z1, z2)` needs floating-point tensors; received "
                f"`{name}` of type {getattr(z, 'dtype', type(z).__name__)}. Embeddings are real "
                "numbers: call `.float()` if these are integers by accident.",
            )
            need(
                z.ndim == 2 and z.shape[1] > 0,
                lambda z=z, name=name: f"`{call}(z1, z2)` needs matrices (n, d) with d > 0; "
                f"received `{name}` of shape {tuple(z.shape)}. Flatten what is not the batch.",
            )
        n, d = z1.shape
        need(
            z2 is None or z2.shape == z1.shape,
            lambda: f"`{call}(z1, z2)` needs `z1.shape == z2.shape == (n, d)`; received "
            f"{tuple(z1.shape)} and {tuple(z2.shape)}. The two views of a batch must stay paired: "
            "check `drop_last`.",
        )
        need(
            z2 is not None or "one view" in self.takes,
            lambda: f"`{call}(z1, z2)` needs both views; received none for `z2`.",
        )
        need(
            n >= self.least,
            lambda: f"`{call}(z1, z2)` needs at least {self.least} "
            f"pair{'s' if self.least > 1 else ''}; received {n}.",
        )
        for name, given in (("labels", labels), ("queue", queue)):
            need(
                given is None or name in self.takes,
                lambda name=name: f"`{call}(z1, z2)` needs no `{name}`; received one of shape "
                f"{tuple(views.get(name, labels).shape)}. `{call}` would ignore it.",
            )
        if queue is not None:
            need(
                queue.shape[1] == d,
                lambda: f"`{call}(z1, z2, queue=...)` needs a queue of dimension {d} like the "
                f"views; received {queue.shape[1]}.",
            )
        if labels is not None:
            need(
                isinstance(labels, Tensor)
                and not labels.is_floating_point()
                and labels.shape == (n,),
                lambda: f"`{call}(z1, z2, labels)` needs one integer label for each of {n} pairs; "
                f"received {getattr(labels, 'dtype', type(labels).__name__)} of shape "
                f"{tuple(getattr(labels, 'shape', ()))}.",
            )
        start, stop = (0, n) if window is None else window
        need(
            0 <= start <= stop <= n,
            lambda: f"`{call}(..., window)` needs `0 <= start <= stop <= {n}`; received "
            f"({start}, {stop}).",
        )
        devices = {z.device for z in views.values() if z is not None}
        need(
            len(devices) == 1,
            lambda: f"`{call}(z1, z2)` needs all tensors on one device; received "
            f"{sorted(map(str, devices))}.",
        )
        require_finite(f"{call}(z1, z2)", z1=z1, z2=z2, queue=queue)
        widened = [None if z is None else wide(z) for z in views.values()]
        dtypes = [z.dtype for z in widened if z is not None]
        if len(set(dtypes)) > 1:  # float32 beside float64: the wider one is right for both
            widened = [None if z is None else z.to(torch.float64) for z in widened]
        z1, z2, queue = widened
        return z1, z2, labels, queue, (start, stop)

    def __repr__(self) -> str:
        return notation(self)

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    __hash__ = object.__hash__  # nn.Module needs identity here; equality is by value
