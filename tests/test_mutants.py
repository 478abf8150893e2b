"""Planted mistakes: each must be caught by at least one check, and the right code by none.

`Right` is the textbook loss in small steps; a mutant overrides one step wrongly. A second list
plants mistakes into our own code.
"""

import math

import pytest
import torch

import chiaroscuro as cs
import chiaroscuro.pairwise.logsumexp as tiles
from chiaroscuro.pairwise import terms
from chiaroscuro.pairwise.statistics import Inner, Squared
from oracles import closed, naive
from tolerances import close, loosened
from zoo import pair

KERNELS = {"cosine": cs.Cosine, "distance": cs.Laplace, "heavy tail": cs.Cauchy}


class Right:
    """InfoNCE over all but self, dense, one step per method."""

    def __call__(self, z1, z2, tau, kernel="cosine"):
        n = len(z1)
        z, candidates = torch.cat([z1, z2]), self.gathered(torch.cat([z1, z2]))
        if kernel == "cosine":
            similarity = self.unit(z) @ self.unit(candidates).T
        elif kernel == "distance":
            similarity = -self.distance(z, candidates)
        else:
            similarity = (z[:, None] - candidates).square().sum(-1)
        log_k = self.tempered(similarity, tau)
        log_k = self.sign() * (-self.tail(log_k) if kernel == "heavy tail" else log_k)
        attract = log_k.gather(1, self.partner(n)[:, None]).squeeze(1)
        repel = self.log_sum_exp(log_k.masked_fill(self.excluded(n), -torch.inf))
        return self.mean(repel - attract)

    def gathered(self, z):
        return z

    def unit(self, z):
        return z / z.norm(dim=1, keepdim=True)

    def distance(self, z, w):
        square = (z[:, None] - w).square().sum(-1)
        zero = square == 0
        return torch.where(zero, 1.0, square).sqrt().masked_fill(zero, 0.0)

    def sign(self):
        return 1

    def tail(self, x):
        return torch.log1p(x)

    def tempered(self, similarity, tau):
        return similarity / tau

    def partner(self, n):
        return torch.arange(2 * n).roll(n)

    def excluded(self, n):
        return torch.eye(2 * n, dtype=torch.bool)

    def log_sum_exp(self, log_k):
        return torch.logsumexp(log_k, dim=1)

    def mean(self, losses):
        return losses.mean()


# ---- the mistakes of the house, one by one ----


class SelfIncluded(Right):
    def excluded(self, n):
        return torch.zeros(2 * n, 2 * n, dtype=torch.bool)


class PositiveLeftOut(Right):
    def excluded(self, n):
        return torch.eye(n, dtype=torch.bool).repeat(2, 2)


class WrongPartner(Right):
    def partner(self, n):
        return torch.arange(2 * n).roll(1)


class SignFlipped(Right):
    def sign(self):
        return -1


class TauMultiplied(Right):
    def tempered(self, similarity, tau):
        return similarity * tau


class TauSquared(Right):
    def tempered(self, similarity, tau):
        return similarity / tau**2


class TailOfTheDistance(Right):
    def tail(self, x):
        return torch.log1p(x.sqrt())


class OneViewOnly(Right):
    def mean(self, losses):
        return losses[: len(losses) // 2].mean()


class MeanForSum(Right):
    def log_sum_exp(self, log_k):
        return torch.logsumexp(log_k, dim=1) - math.log(log_k.shape[1] - 1)


class SumForMean(Right):
    def mean(self, losses):
        return losses.sum()


class NoNormalisation(Right):
    def unit(self, z):
        return z


class DiagonalMaskedAfterThePower(Right):
    def distance(self, z, w):
        r = (z[:, None] - w).square().sum(-1).sqrt()
        return r.masked_fill(torch.eye(len(z), dtype=torch.bool), 0.0)


class MaximumNotSubtracted(Right):
    def log_sum_exp(self, log_k):
        return log_k.exp().sum(dim=1).log()


class GatherWithoutItsGradient(Right):
    def gathered(self, z):
        return z.detach()


MUTANTS = [
    SelfIncluded, PositiveLeftOut, WrongPartner, SignFlipped, TauMultiplied, TauSquared,
    TailOfTheDistance, OneViewOnly, MeanForSum, SumForMean, NoNormalisation,
    DiagonalMaskedAfterThePower, MaximumNotSubtracted, GatherWithoutItsGradient,
]  # fmt: skip


# ---- the checks: each takes a loss(z1, z2, tau, kernel) and fails if it is wrong ----


def collapsed_batch(loss):
    z = torch.ones(5, 3).double()
    for kernel in KERNELS:
        close(loss(z, z, 0.3, kernel), closed.collapsed("AllButSelf", 5))


def orthonormal_batch(loss):
    eye = torch.eye(5).double()
    close(loss(eye, eye, 0.3), closed.orthonormal("AllButSelf", 5, 0.3))


def antipodal_views(loss):
    z = torch.ones(5, 3).double()
    close(loss(z, -z, 0.7), closed.antipodal("AllButSelf", 5, 0.7))


def random_values(loss):
    z1, z2 = pair(6)
    for name, kernel in KERNELS.items():
        right = naive.infonce(kernel(0.3), "AllButSelf", "both", z1, z2)
        close(loss(z1, z2, 0.3, name), right)


def random_gradients(loss):
    for name, kernel in KERNELS.items():
        z1, z2 = pair(6)
        right = naive.gradients(naive.infonce(kernel(0.3), "AllButSelf", "both", z1, z2), z1, z2)
        found = naive.gradients(loss(z1, z2, 0.3, name), z1, z2)
        for a, b in zip(found, right, strict=True):
            close(a, b)


def small_temperature(loss):
    """In float32, where exp(1/tau) is no number."""
    z1, z2 = pair(6, dtype=torch.float32)
    right = naive.infonce(cs.Cosine(1e-3), "AllButSelf", "both", z1.double(), z2.double())
    close(loss(z1, z2, 1e-3), right, loosened("logits over tau", 1e-3))


CHECKS = [
    collapsed_batch, orthonormal_batch, antipodal_views, random_values, random_gradients,
    small_temperature,
]  # fmt: skip


def caught_by(loss):
    """The names of the checks that a loss fails."""
    names = []
    for check in CHECKS:
        try:
            check(loss)
        except (AssertionError, RuntimeError, cs.InputError):
            names.append(check.__name__)
    return names


def ours(z1, z2, tau, kernel="cosine"):
    return cs.InfoNCE(KERNELS[kernel](tau), cs.AllButSelf())(z1, z2)


@pytest.mark.parametrize("loss", [Right(), ours], ids=["textbook", "ours"])
def test_the_right_implementations_pass_every_check(loss):
    assert caught_by(loss) == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.__name__)
def test_every_mutant_is_caught(mutant):
    assert caught_by(mutant()) != []


def test_every_check_catches_something():
    """A check that nothing fails would be decoration."""
    used = {name for mutant in MUTANTS for name in caught_by(mutant())}
    assert used == {check.__name__ for check in CHECKS}


@pytest.mark.parametrize(
    ("mutant", "only"),
    [
        (GatherWithoutItsGradient, {"random_gradients"}),
        (DiagonalMaskedAfterThePower, {"random_gradients"}),
        (MaximumNotSubtracted, {"small_temperature"}),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_what_only_one_check_sees(mutant, only):
    """Values alone would pass these: gradients and small temperatures are not optional."""
    assert set(caught_by(mutant())) == only


# ---- the same mistakes planted into our own code ----


def plant_self_included(patch):
    values = tiles._Visit._values

    def forgetful(self, tile, index, left):
        return values(self, type(tile)(**{**vars(tile), "drop": ()}), index, left)

    patch.setattr(tiles._Visit, "_values", forgetful)


def plant_positive_left_out(patch):
    patch.setattr(cs.AllButSelf, "positive", False)


def plant_other_view_forgotten(patch):
    patch.setattr(cs.AllButSelf, "other_view", False)


def plant_sign_flipped(patch):
    patch.setattr(cs.Cosine, "factor", -1.0)


def plant_no_normalisation(patch):
    patch.setattr(cs.Cosine, "base", lambda self, z: z)


def plant_tau_squared(patch):
    rate = cs.Cosine.rate_and_scale
    patch.setattr(cs.Cosine, "rate_and_scale", lambda self, like: (rate(self, like)[0] ** 2, None))


def plant_tau_multiplied(patch):
    rate = cs.Cosine.rate_and_scale
    patch.setattr(cs.Cosine, "rate_and_scale", lambda self, like: (1 / rate(self, like)[0], None))


def plant_maximum_never_tracked(patch):
    patch.setattr(terms, "OVERFLOW", math.inf)
    patch.setattr(terms, "UNDERFLOW", math.inf)


def plant_columns_without_gradient(patch):
    push = Inner.push
    patch.setattr(
        Inner,
        "push",
        lambda self, w, i, j, near, both, into: push(self, w, i, j, near, False, into),
    )
    patch.setattr(tiles, "TILE_KEPT", 4)


def plant_near_pairs_without_gradient(patch):
    push = Squared.push
    patch.setattr(
        Squared,
        "push",
        lambda self, w, i, j, near, both, into: push(self, w * 0.99, i, j, near, both, into),
    )


def plant_partners_shifted(patch):
    paired = Inner.paired
    patch.setattr(Inner, "paired", lambda self, i, j: paired(self, i, j).roll(1))


def plant_slope_of_another_formula(patch):
    patch.setattr(cs.Cauchy, "slope", lambda self, x: -1 / (2 + x))


def plant_slope_forgotten(patch):
    patch.setattr(cs.Cauchy, "slope", lambda self, x: torch.ones_like(x))


def plant_tail_without_its_one(patch):
    patch.setattr(cs.Cauchy, "profile", lambda self, x: -torch.log(x + 0.5))


PLANTED = {name[6:]: f for name, f in dict(globals()).items() if name.startswith("plant_")}


@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED)
def test_every_mistake_planted_into_our_code_is_caught(plant, monkeypatch):
    plant(monkeypatch)
    assert caught_by(ours) != []
