"""DINO: a student's distribution over prototypes follows that of a momentum teacher."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from chiaroscuro.errors import need, number
from chiaroscuro.objectives.objective import Batch, Objective
from chiaroscuro.objectives.sinkhorn import equal_shares

__all__ = ["DINO"]


class DINO(Objective):
    """Cross-entropy between teacher and student over K prototypes [caron2021dino, eqs. 1-4].

        loss = - mean_i sum_k P_ik log softmax(z1_i / tau)_k
        P_i = softmax((stop(z2_i) - centre) / target_tau)                     centring="mean"
        P = Sinkhorn-Knopp of stop(z2) / target_tau, equal use of prototypes  centring="sinkhorn"

    `z1` are the scores (n, K) that the student gives the prototypes for one crop, `z2` those of the
    teacher, a momentum encoder, for another; the gradient stops at `z2`. This is one direction and
    one pair of crops: the loss of many crops is the mean over pairs of different crops whose
    second one the teacher sees.

    The centre is the running mean of the teacher's scores and keeps one prototype from taking all;
    the small `target_tau` sharpens and keeps them from being used alike. Nothing here moves the
    centre: `adapt(objective, z1, z2)` after the loss of a step does (`objective.observe(z2)`), and
    `train` calls it. It is state, saved with the run, and not part of the notation.

    Relations: before it has seen a batch the centre is 0. With `centring="sinkhorn"` and equal
    temperatures the mean of both directions is `SwAV`. With `centring="mean"` a constant added to
    all scores of a sample changes nothing.

    Args:
        tau: temperature of the student, 0.1 [caron2021dino, Sec. 3.2].
        target_tau: of the teacher, 0.04; there it rises to 0.07 in 30 epochs [caron2021dino,
            Sec. 3.2].
        centring: "mean" [caron2021dino, eq. 4] or "sinkhorn" [oquab2023dinov2, Sec. 4].
        momentum: of the centre, per batch; 0.9 [caron2021dino, App. D].
        iterations: of Sinkhorn-Knopp, 3 [oquab2023dinov2, Sec. 4].

    Numerics: probabilities are taken in the log domain; a collapsed batch gives at most log K.

    References:
        caron2021dino, oquab2023dinov2, cuturi2013

    Example:
        >>> round(float(DINO()(torch.zeros(2, 8), torch.zeros(2, 8))), 4)  # log 8
        2.0794
    """

    directed = True
    centre: Tensor

    def __init__(
        self,
        tau: float = 0.1,
        target_tau: float = 0.04,
        centring: Literal["mean", "sinkhorn"] = "mean",
        momentum: float = 0.9,
        iterations: int = 3,
    ):
        super().__init__()
        need(
            centring in ("mean", "sinkhorn"),
            lambda: f'`DINO(centring)` needs "mean" or "sinkhorn"; received {centring!r}.',
        )
        self.tau = number("DINO", "tau", tau, above=True)
        self.target_tau = number("DINO", "target_tau", target_tau, above=True)
        self.centring = centring
        self.momentum = number("DINO", "momentum", momentum)
        need(
            self.momentum < 1,
            lambda: f"`DINO(momentum)` needs a number from 0 to below 1; received {momentum}.",
        )
        self.iterations = at_least_one("DINO", "iterations", iterations)
        self.reduces = "samples" if centring == "mean" else "batch"
        if centring == "mean":
            self.register_buffer("centre", torch.zeros(()))

    def loss(self, batch: Batch) -> Tensor:
        return self.losses(batch).mean()

    def losses(self, batch: Batch) -> Tensor:
        return cross_entropies(self.targets(batch.pair[1]), batch.z1 / self.tau)

    def targets(self, z2: Tensor) -> Tensor:
        """The teacher's probabilities (n, K), constants to the gradient."""
        z2 = z2.detach()
        if self.centring == "sinkhorn":
            return equal_shares(z2, self.target_tau, self.iterations)
        need(
            self.centre.ndim == 0 or self.centre.shape == z2.shape[1:],
            lambda: (
                f"`DINO(z1, z2)` needs as many prototypes as its centre has, {len(self.centre)}; "
                f"received {z2.shape[1]}."
            ),
        )
        return torch.softmax((z2 - self.centre.to(z2.dtype)) / self.target_tau, dim=1)

    @torch.no_grad()
    def observe(self, z2: Tensor) -> None:
        """Move the centre towards the mean of the teacher's scores, of all crops and ranks."""
        if self.centring == "mean":
            mean = z2.detach().to(self.centre.dtype).mean(dim=0)
            self.centre = self.centre.expand_as(mean).lerp(mean, 1 - self.momentum)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *more: Any) -> None:
        """The number of prototypes is that of the scores, which only a batch tells."""
        saved = state_dict.get(f"{prefix}centre")
        if self.centring == "mean" and saved is not None:
            self.centre = self.centre.new_zeros(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *more)


def cross_entropies(probabilities: Tensor, logits: Tensor) -> Tensor:
    """- sum_k P_ik log softmax(logits_i)_k of each row."""
    return -(probabilities * torch.log_softmax(logits, dim=1)).sum(dim=1)


def at_least_one(call: str, name: str, x: object) -> int:
    """x as a whole number of at least 1; else a sentence."""
    need(
        isinstance(x, int) and not isinstance(x, bool) and x >= 1,
        lambda: f"`{call}({name})` needs a whole number of at least 1; received {x!r}.",
    )
    return int(x)  # type: ignore[call-overload]
