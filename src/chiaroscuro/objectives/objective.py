"""What an objective is: paired tensors in, one scalar out, and how it splits over ranks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from chiaroscuro.errors import InputError, need
from chiaroscuro.numerics import (
    full_precision,
    locate_non_finite,
    readable,
    require_finite,
    wide,
)
from chiaroscuro.spec import notation, same, say_parameters

__all__ = ["Batch", "Objective", "require_labels", "require_views"]

Window = tuple[int, int]


@dataclass(frozen=True)
class Batch:
    """What an objective is computed on, checked and widened."""

    z1: Tensor
    z2: Tensor | None
    labels: Tensor | None
    queue: Tensor | None
    window: Window
    groups: Tensor | None = None

    @property
    def n(self) -> int:
        """How many pairs."""
        return len(self.z1)

    @property
    def pair(self) -> tuple[Tensor, Tensor]:
        """The two views."""
        return self.z1, self.z1 if self.z2 is None else self.z2

    def largest(self) -> float:
        """The largest absolute value among the embeddings."""
        return max(float(z.detach().abs().max()) for z in self.pair if z.numel())

    def map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """The batch with all its embeddings changed in the same way."""
        return replace(
            self,
            z1=change(self.z1),
            z2=None if self.z2 is None else change(self.z2),
            queue=None if self.queue is None else change(self.queue),
        )


class Objective(nn.Module, ABC):
    """Abstract loss: a pure function of two paired (n, d) tensors.

    No model, no gather, no logging, no memory bank inside. Half precision is widened to float32
    first; the result is float32 or float64, on the device of the embeddings. An objective of your
    own needs `loss(batch)`.

    Embeddings that are not finite are refused with the row that is at fault. On an accelerator, and
    inside `torch.compile` and `torch.func`, that would wait for the numbers: there the loss is NaN,
    and `objective.explain(z1, z2)` names the row whenever you look.

    Declares:
        reduces: how the loss of a batch spread over several ranks is put together.
            "anchors": a sum over anchors, each against the candidates of all ranks; a rank takes
            its own anchors (`window`). "batch": a function of the whole batch; every rank computes
            it whole. "samples": a mean over samples that do not see each other.
        takes: which of `labels`, `queue` and `groups` it understands.
        needs: which of them it cannot do without.
        least: the smallest number of pairs that gives it a meaning.
        directed: z1 learns from z2, to which no gradient flows: the order of the views matters.
    """

    reduces: str = "batch"
    takes: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    least: int = 1
    directed: bool = False

    def __init_subclass__(cls) -> None:
        say_parameters(cls)

    def forward(
        self,
        z1: Tensor,
        z2: Tensor | None = None,
        labels: Tensor | None = None,
        queue: Tensor | None = None,
        window: Window | None = None,
        reduction: str = "mean",
        groups: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch of pairs.

        Args:
            z1: one view, (n, d).
            z2: the other, paired row by row.
            labels: one integer per pair, for supervised objectives.
            queue: extra candidates, (m, d), as MoCo keeps them.
            window: count only anchors start <= i < stop, still divided by the number of all: the
                values of windows that tile the batch add up to the loss.
            reduction: "mean" over the anchors; "sum" over them; "none" for one loss per anchor, the
                rows of z1 first and then those of z2. Only for a loss that is a mean over anchors.
            groups: one integer per pair; a candidate of the anchor's own group, such as a duplicate
                or a known false negative, is left out of its negatives. In training, `Grouped`
                reads them from the labels.
        """
        need(
            reduction in ("mean", "sum", "none"),
            lambda: (
                f'`{type(self).__name__}(..., reduction)` needs "mean", "sum" or "none"; received '
                f"{reduction!r}."
            ),
        )
        batch = self._checked(z1, z2, labels, queue, window, groups)
        with full_precision(batch.z1.device):
            loss = self.loss(batch) if reduction == "mean" else self.losses(batch)
        if reduction == "sum":
            loss = loss.sum()
        if readable(loss) and not math.isfinite((loss if loss.ndim == 0 else loss.sum()).item()):
            self._overflowed(loss, batch)
        return loss

    @abstractmethod
    def loss(self, batch: Batch) -> Tensor:
        """The formula, on inputs that have been checked and widened."""

    def losses(self, batch: Batch) -> Tensor:
        """One loss per anchor, whose mean is the loss, where it is such a mean."""
        name = type(self).__name__
        raise InputError(
            f'`{name}(..., reduction)` needs "mean"; `{name}` is a function of the whole batch, '
            "not a mean over anchors that could be reported one by one."
        )

    def explain(self, z1: Tensor, z2: Tensor | None = None, queue: Tensor | None = None) -> None:
        """Say what is wrong with embeddings whose loss is not finite, on any device.

        Raises the sentence that a call on the CPU would have raised, and returns if nothing is.
        """
        given = {"z1": z1, "z2": z2, "queue": queue}
        call = f"{type(self).__name__}(z1, z2)"
        locate_non_finite(call, **{name: z for name, z in given.items() if z is not None})

    def _overflowed(self, loss: Tensor, batch: Batch) -> None:
        raise InputError(
            f"`{type(self).__name__}(z1, z2)` needs numbers that fit into {loss.dtype}; "
            f"received embeddings up to {batch.largest():.3g}, and the loss is "
            f"{float(loss.detach().sum())}. Normalise, raise `tau`, or use float64."
        )

    def terms(
        self,
        z1: Tensor,
        z2: Tensor | None = None,
        labels: Tensor | None = None,
        queue: Tensor | None = None,
        window: Window | None = None,
        groups: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """The loss as attraction and repulsion: loss = terms["repel"] - terms["attract"]."""
        batch = self._checked(z1, z2, labels, queue, window, groups)
        with full_precision(batch.z1.device):
            attract, repel = self.split(batch)
        return {"attract": attract, "repel": repel}

    def split(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Attraction and repulsion, where the objective has both."""
        name = type(self).__name__
        raise InputError(
            f"`{name}.terms` needs an objective of attraction and repulsion; `{name}` is one whole."
        )

    def _checked(
        self,
        z1: Tensor,
        z2: Tensor | None,
        labels: Tensor | None,
        queue: Tensor | None,
        window: Window | None,
        groups: Tensor | None,
    ) -> Batch:
        call = f"{type(self).__name__}(z1, z2)"
        require_views(call, z1, z2, queue)
        n, views = len(z1), {"z1": z1, "z2": z2, "queue": queue}
        need(
            z2 is not None or "one view" in self.takes,
            lambda: f"`{call}` needs both views; received none for `z2`.",
        )
        need(
            n >= self.least,
            lambda: (
                f"`{call}` needs at least {self.least} "
                f"pair{'s' if self.least > 1 else ''}; received {n}."
            ),
        )
        for what, given in (("labels", labels), ("queue", queue), ("groups", groups)):
            need(
                given is not None or what not in self.needs,
                lambda what=what: (
                    f"`{type(self).__name__}(z1, z2, {what})` needs `{what}`; received none."
                ),
            )
            need(
                given is None or what in self.takes,
                lambda what=what, given=given: (
                    f"`{call}` needs no `{what}`; received one of shape "
                    f"{tuple(getattr(given, 'shape', ()))}. `{type(self).__name__}` would ignore "
                    "it."
                ),
            )
        require_labels(call, labels, n)
        require_labels(call, groups, n, "group")
        name = type(self).__name__
        start, stop = (0, n) if window is None else _range(name, window, n)
        need(
            (start, stop) == (0, n) or self.reduces == "anchors",
            lambda: (
                f"`{name}(..., window)` needs a loss that is a sum over anchors; received the "
                f"window ({start}, {stop}) of {n} for one that reduces over {self.reduces}."
            ),
        )
        batch = Batch(z1, z2, labels, queue, (start, stop), groups)
        dtypes = {z.dtype for z in views.values() if z is not None}
        if dtypes == {torch.float32} or dtypes == {torch.float64}:
            return batch
        if torch.float64 in dtypes:  # beside a narrower one: the wider is right for both
            return batch.map(lambda z: z.to(torch.float64))
        return batch.map(wide)

    def __repr__(self) -> str:
        return notation(self)

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    __hash__ = object.__hash__  # nn.Module needs identity here; equality is by value


def require_views(call: str, z1: Tensor, z2: Tensor | None, queue: Tensor | None) -> None:
    """Refuse embeddings that no objective can be computed on, in one sentence about `call`.

    Args:
        call: for the sentence, such as `InfoNCE(z1, z2)`.
        z1, z2, queue: as an objective takes them; no rows at all are fine here.
    """
    views = {"z1": z1, "z2": z2, "queue": queue}
    for name, z in views.items():
        if z is None and name != "z1":
            continue
        if not isinstance(z, Tensor) or not z.is_floating_point():
            raise InputError(
                f"`{call}` needs floating-point tensors; received `{name}` of type "
                f"{getattr(z, 'dtype', type(z).__name__)}. Embeddings are real "
                "numbers: call `.float()` if these are integers by accident."
            )
        need(
            z.ndim == 2 and z.shape[1] > 0,
            lambda z=z, name=name: (
                f"`{call}` needs matrices (n, d) with d > 0; "
                f"received `{name}` of shape {tuple(z.shape)}. Flatten what is not the batch."
            ),
        )
    need(
        z2 is None or z2.shape == z1.shape,
        lambda: (
            f"`{call}` needs `z1.shape == z2.shape == (n, d)`; received "
            f"{tuple(z1.shape)} and {tuple(getattr(z2, 'shape', ()))}. The two views of a "
            "batch must stay paired: check `drop_last`."
        ),
    )
    if queue is not None:
        need(
            queue.shape[1] == z1.shape[1],
            lambda: (
                f"`{call}` needs a queue of dimension {z1.shape[1]} like the views; received "
                f"{queue.shape[1]}."
            ),
        )
    need(
        all(z is None or z.device == z1.device for z in views.values()),
        lambda: (
            f"`{call}` needs all tensors on one device; received "
            f"{sorted({str(z.device) for z in views.values() if z is not None})}."
        ),
    )
    require_finite(call, z1=z1, z2=z2, queue=queue)


def require_labels(call: str, labels: Tensor | None, n: int, what: str = "label") -> None:
    """Refuse labels (or groups) that are not one integer for each of n pairs."""
    fits = isinstance(labels, Tensor) and not labels.is_floating_point() and labels.shape == (n,)
    need(
        labels is None or fits,
        lambda: (
            f"`{call}` needs one integer {what} for each of {n} pairs; "
            f"received {getattr(labels, 'dtype', type(labels).__name__)} of shape "
            f"{tuple(getattr(labels, 'shape', ()))}."
        ),
    )


def _range(call: str, window: object, n: int) -> Window:
    whole = isinstance(window, (tuple, list)) and len(window) == 2
    if isinstance(window, (tuple, list)) and whole and all(isinstance(x, int) for x in window):
        start, stop = window
        if 0 <= start <= stop <= n:
            return start, stop
    raise InputError(
        f"`{call}(..., window)` needs two whole numbers `0 <= start <= stop <= {n}`; received "
        f"{window!r}."
    )
