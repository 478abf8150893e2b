"""Negatives corrected for those that are none, and weighted by how hard they are."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from chiaroscuro.errors import need, number
from chiaroscuro.kernels import Cosine
from chiaroscuro.kernels.temperature import Temperature
from chiaroscuro.numerics import readable
from chiaroscuro.objectives.infonce import pairs_and_sums, stacked
from chiaroscuro.objectives.objective import Batch, Objective
from chiaroscuro.pairwise import AllButPair, by_blocks

__all__ = ["Debiased"]


class Debiased(Objective):
    """Debiased [chuang2020debiased, eqs. 7, 8] and hard-negative [robinson2021hard] losses.

        loss = mean_i [ log(k_i+ + m g_i) - log k_i+ ]
        g_i = max( (E_i - prior k_i+) / (1 - prior), exp(-1/tau) )
        E_i = sum_c k_ic^(1+beta) / sum_c k_ic^beta      over the m candidates of other samples

    A share `prior` of the candidates is expected to be of the anchor's own class: what they add is
    subtracted. `beta` gives a candidate the weight k^beta, so that the hard ones count more.

    Not a value of `InfoNCE(kernel, negatives)`, whose weights are constants added to log k: here
    the weight of a candidate depends on the candidates, and the positive is subtracted. But all of
    it is made of the same log-sum-exps, over k^(1+beta) and k^beta, which are the kernel at
    tau/(1+beta) and tau/beta, so that it has their tiles.

    Relations: `Debiased(kernel, prior=0, beta=0)` is `InfoNCE(kernel, AllButSelf())`. beta=0 is the
    loss of Chuang et al., with one positive per anchor (M = 1).

    Args:
        kernel: a `Cosine` with one temperature, fixed or learnable: the bound exp(-1/tau) is its
            smallest value; 0.5 [chuang2020debiased, Sec. 5.1].
        prior: tau+ there, 0.1 [chuang2020debiased, Sec. 5.1].
        beta: 0, no weighting; [robinson2021hard, Sec. 5] tries 0.5 to 2.
        anchors: "both" views or "first".

    Numerics: differences of sums are taken in the log domain; where the estimate is below the
    bound the gradient is that of the bound.

    References:
        chuang2020debiased, robinson2021hard

    Example:
        >>> z = torch.eye(4)
        >>> round(float(Debiased(Cosine(tau=0.5), prior=0.0)(z, z)), 6)  # log(1 + 6 exp(-2))
        0.594438
    """

    reduces = "anchors"
    takes = frozenset({"queue"})

    def __init__(
        self,
        kernel: Cosine | None = None,
        prior: float = 0.1,
        beta: float = 0.0,
        anchors: str = "both",
    ):
        super().__init__()
        self.kernel = Cosine(tau=0.5) if kernel is None else kernel
        need(
            isinstance(self.kernel, Cosine) and self.kernel.isotropic,
            lambda: (
                "`Debiased(kernel)` needs a `Cosine` with one temperature, whose smallest value is "
                f"exp(-1/tau); received {self.kernel!r}."
            ),
        )
        self.prior = number("Debiased", "prior", prior)
        need(
            self.prior < 1,
            lambda: f"`Debiased(prior)` needs a share from 0 to below 1; received {prior}.",
        )
        self.beta = number("Debiased", "beta", beta)
        need(
            anchors in ("both", "first"),
            lambda: f'`Debiased(anchors)` needs "both" or "first"; received {anchors!r}.',
        )
        self.anchors = anchors

    def loss(self, batch: Batch) -> Tensor:
        return self.losses(batch).sum() / self._anchors(batch)

    def losses(self, batch: Batch) -> Tensor:
        attract, repel = self._per_anchor(batch)
        return (repel - attract).flatten()

    def split(self, batch: Batch) -> tuple[Tensor, Tensor]:
        attract, repel = self._per_anchor(batch)
        return attract.sum() / batch.n, repel.sum() / self._anchors(batch)

    def _anchors(self, batch: Batch) -> int:
        return batch.n * (2 if self.anchors == "both" else 1)

    def _per_anchor(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """log k of positives (m), and log(k+ + m g) of each anchor (1 or 2, m)."""
        m = AllButPair().count(batch.n) + (0 if batch.queue is None else len(batch.queue))
        need(
            m > 0,
            lambda: (
                "`Debiased(z1, z2)` needs at least one candidate per anchor; received "
                f"{batch.n} pair and no queue. Take a larger batch."
            ),
        )
        pairs, sums = self._sums(batch)
        if self.beta:
            sums = math.log(m) + sums[1] - sums[0]
        rate = self.kernel.rate_and_scale(batch.z1)[0]
        floor = math.log(m) - rate
        if not self.prior:
            return pairs, torch.logaddexp(pairs.expand_as(sums), sums)
        above = sums - (pairs + math.log(m * self.prior))
        left = torch.log(-torch.expm1(-above.clamp(min=torch.finfo(sums.dtype).tiny)))
        estimate = (sums + left - math.log1p(-self.prior)).masked_fill(above <= 0, -math.inf)
        log_g = _at_least(estimate, floor)
        return pairs, torch.logaddexp(pairs.expand_as(log_g), log_g)

    def _sums(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """log k of pairs, and log of the sum over all other samples of k, or k^beta and k^(1+beta).

        A power of the kernel is the kernel at a smaller temperature, by the tiles.
        """
        both, kernel = self.anchors == "both", self.kernel
        if not self.beta:
            pairs, sums, _ = pairs_and_sums(kernel, batch, AllButPair(), both)
            return pairs, sums
        powers = self.beta, 1 + self.beta
        if not readable(batch.z1):
            z, layout = stacked(kernel, batch, AllButPair(), both)
            pairs, sums, _ = by_blocks(kernel, z, layout, powers=powers)
            return pairs, sums
        each = [pairs_and_sums(self._raised(q), batch, AllButPair(), both) for q in powers]
        return each[0][0] / self.beta, torch.stack([sums for _, sums, _ in each])

    def _raised(self, q: float) -> Cosine:
        tau = self.kernel.tau
        return Cosine(_Divided(tau, q) if isinstance(tau, Temperature) else tau / q)  # type: ignore[operator]


def _at_least(x: Tensor, bound: float | Tensor) -> Tensor:
    return torch.maximum(x, bound) if isinstance(bound, Tensor) else x.clamp(min=bound)


class _Divided(Temperature):
    """Another temperature, divided by a number."""

    def __init__(self, tau: Temperature, q: float):
        super().__init__()
        self.tau, self.q = tau, q
        self.init = tau.init / q  # type: ignore[operator]

    def value(self) -> Tensor:
        return self.tau.value() / self.q
