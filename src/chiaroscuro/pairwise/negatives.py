"""Which candidates an anchor is compared with. The positive of an anchor is its partner."""

from __future__ import annotations

import torch
from torch import Tensor

from chiaroscuro.spec import notation, same

__all__ = ["AllButPair", "AllButSelf", "Negatives", "OnlyPositive", "OtherView", "SameView"]


class Negatives:
    """Abstract choice of the candidates in the denominator of an anchor.

    Declares:
        own_view: the other samples, in the anchor's own view, are candidates.
        other_view: the other samples, in the other view, are candidates.
        positive: the anchor's partner is a candidate.
    """

    own_view: bool
    other_view: bool
    positive: bool

    def count(self, n: int) -> int:
        """How many candidates an anchor has among n pairs."""
        return (n - 1) * (self.own_view + self.other_view) + self.positive

    def log_weights(self, n: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """The (2n, 2n) matrix of log weights: 0 for a candidate, -inf for what is left out.

        Rows and columns are [view one, view two]. This is the meaning; the tiles of `log_sum_exp`
        never build it.
        """
        others = ~torch.eye(n, dtype=torch.bool)
        own = others & self.own_view
        across = (others & self.other_view) | (~others & self.positive)
        kept = torch.cat([torch.cat([own, across], 1), torch.cat([across, own], 1)])
        return torch.zeros(2 * n, 2 * n, dtype=dtype).masked_fill(~kept, -torch.inf)

    def __repr__(self) -> str:
        return notation(self)

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    def __hash__(self) -> int:
        return hash(type(self))


class AllButSelf(Negatives):
    """Use all 2n-1 others, including the positive: NT-Xent [chen2020simclr, eq. 1].

    Relations: the sum over candidates is that of `AllButPair` plus the positive.

    References:
        chen2020simclr

    Example:
        >>> AllButSelf().count(n=4)
        7
    """

    own_view = True
    other_view = True
    positive = True


class AllButPair(Negatives):
    """Use the 2n-2 views of other samples, without the positive [cosentino2022, eq. 1; yeh2022dcl].

    Relations: decoupled from the positive, so the loss has no lower bound of 0, and the bound of
    [cosentino2022, Prop. 3.1] holds for it and for it alone.

    References:
        cosentino2022, yeh2022dcl

    Example:
        >>> AllButPair().count(n=4)
        6
    """

    own_view = True
    other_view = True
    positive = False


class OtherView(Negatives):
    """Use all n of the other view, including the positive: CLIP [semantic2025, eq. 2].

    Relations: with `anchors="both"` it is CLIP's symmetric cross-entropy [radford2021clip, Fig. 3].

    References:
        radford2021clip, semantic2025

    Example:
        >>> OtherView().count(n=4)
        4
    """

    own_view = False
    other_view = True
    positive = True


class SameView(Negatives):
    """Use the positive and the n-1 others of the anchor's own view [rusak2022, eq. 4].

    Relations: of two identical views it equals `OtherView`.

    References:
        rusak2022

    Example:
        >>> SameView().count(n=4)
        4
    """

    own_view = True
    other_view = False
    positive = True


class OnlyPositive(Negatives):
    """Use the positive only; negatives come from a queue: MoCo [he2020moco, Alg. 1].

    Relations: with a queue and `anchors="first"` it is the cross-entropy of MoCo's logits, positive
    first. `InfoNCE` refuses it without a queue: the loss would be 0 whatever the batch.

    References:
        he2020moco

    Example:
        >>> OnlyPositive().count(n=4)
        1
    """

    own_view = False
    other_view = False
    positive = True
