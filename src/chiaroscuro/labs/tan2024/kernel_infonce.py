"""Sec. 5.2, Table 2: Kernel-InfoNCE, its kernels and their two kinds of sums.

Paper: tan2024, eqs. (7), (8), Sec. 5.2 (sums of kernels), Algorithm 2 and Table 2 (sums of
losses).

Errata, typos and remarks of ours (each claim says which). Algorithm 2 takes the softmax of +|z_i -
z_j|^gamma: without the minus sign its loss falls too, and positives end at antipodes. tau of gamma
= 2 is twice SimCLR's tau. Sums of kernels (Sec. 5.2) and sums of losses (Table 2) are different
objectives, and between the two the halves of the concatenation are exchanged. The concatenation
kernel is positive definite but not strictly: the four corners of a rectangle have a singular Gram
matrix. exp(-r^gamma) is positive definite for gamma <= 2 only, eq. (7) allows every gamma > 0. The
gradient of |z|^gamma on the diagonal is NaN for gamma < 2 if the diagonal is masked after the
power.

Deviations: none in the losses; the training that shows the sign is on free points of the sphere.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import chiaroscuro as cs
from chiaroscuro.labs import Erratum, Keep, Remark, Stated, at_once, style

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

VALUES = Stated(
    "S5.values",
    "values and gradients of Gaussian, Laplacian, gamma = 0.5, simple sum and concatenation equal "
    "a transcription of eq. (8)",
    "eqs. (7), (8), Sec. 5.2",
    "definition",
    "value_error < 1e-10 and gradient_error < 1e-10",
)
DEFINITE = Stated(
    "S5.definite",
    "the kernels of Table 1 are positive definite, as they declare",
    "Sec. 5.2",
    "positive definite",
    "smallest > -1e-10 and declared == 1",
)
NEAR = Stated(
    "S5.near",
    "log k of positives that nearly coincide keeps its digits in float32, where the expansion "
    "|z|^2 + |w|^2 - 2 z.w loses them",
    "Algorithm 2, in floating point",
    "not discussed",
    "ours < 1e-3 and expansion > 1e-1",
    kind="remark",
)
SIGN = Erratum(
    "S5.sign",
    "Algorithm 2, lines 3 and 5",
    "minimising -log softmax of +|z_i - z_j|^gamma / tau brings positives together.",
    "distance_end < distance_start",
    "minimising -log softmax of -|z_i - z_j|^gamma / tau brings positives together.",
    "distance_end < distance_start",
    quote="s_{i,j} = ||z_i - z_j||_2^gamma ... l(i,j) = -log exp(s_{i,j}/tau) / sum_{k=1}^{2N} "
    "1[k != i] exp(s_{i,k}/tau)",
    why="eqs. (7), (8) have the minus sign",
    kind="typo",
)
TWICE = Remark(
    "S5.twice",
    "Algorithm 2 at gamma = 2",
    "gamma = 2 with tau is SimCLR with tau.",
    "error < 1e-10",
    "gamma = 2 with 2 tau is SimCLR with tau.",
    "error < 1e-10",
)
SUMS = Remark(
    "S5.sums",
    "Sec. 5.2 (sums of kernels) and Table 2 (sums of losses)",
    "the loss of a sum of kernels is, up to a constant, the sum of their losses.",
    "spread < 1e-10",
    "they are two objectives; each equals its own transcription.",
    "kernel_sum_error < 1e-10 and loss_sum_error < 1e-10",
)
HALVES = Erratum(
    "S5.halves",
    "Sec. 5.2 against Table 2: concatenation",
    "Table 2 gives the Gaussian the half that Sec. 5.2 gives it.",
    "error < 1e-10",
    "they agree after the halves of z are exchanged.",
    "error < 1e-10",
    quote="Sec. 5.2: the Gaussian kernel of [0:n], the Laplacian of [n:2n]; Table 2: gamma = 1 of "
    "z_L, gamma = 2 of z_R",
    why="a matter of naming the halves",
    kind="typo",
)
STRICTLY = Erratum(
    "S5.strictly",
    "Sec. 5.2: both mixing methods maintain strict positive definiteness",
    "the Gram matrix of the concatenation at distinct points is regular.",
    "smallest > 1e-6",
    "it is singular at the corners of a rectangle, but not negative.",
    "smallest > -1e-10 and simple_sum > 1e-6",
    quote="It is easy to see that both mixing methods maintain the strictly positive definite "
    "property of the base kernels",
    why="the concatenation's halves see a part of the vector each; at the corners of a "
    "rectangle its Gram matrix is singular, on the unit sphere too (these corners lie on it)",
)
GAMMA = Remark(
    "S5.gamma",
    "eq. (7): gamma, tau > 0",
    "exp(-|x - y|^gamma / tau) is positive definite for every gamma.",
    "smallest > -1e-10",
    "it is for gamma <= 2, and so for all that the paper uses.",
    "smallest > -1e-10",
)
DIAGONAL = Remark(
    "S5.diagonal",
    "Algorithm 2, lines 3 and 5, as code: the diagonal masked after the power",
    "its gradient for gamma = 0.5 and 1 has only finite entries.",
    "not_finite == 0",
    "with coincident points taken out before the power it has.",
    "not_finite == 0",
)
CLAIMS = (VALUES, DEFINITE, NEAR, SIGN, TWICE, SUMS, HALVES, STRICTLY, GAMMA, DIAGONAL)


@dataclass(frozen=True)
class Settings:
    """Batches and training.

    Args:
        seeds: random batches, and starts of the training, each.
        n, d: pairs and dimensions of a batch; 256 and 128 or 256 in App. B.
        tau: 0.5, SimCLR's.
        n_train, d_train: free points on the sphere.
        steps, lr: of gradient descent, until positives stand still.
        gammas: of the Gram matrices.
    """

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    n: int = 32
    d: int = 16
    tau: float = 0.5
    n_train: int = 32
    d_train: int = 3
    steps: int = 400
    lr: float = 2.0
    gammas: tuple[float, ...] = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)


QUICK = Settings(seeds=(0, 1), n=8, d=8, steps=150)
LAPTOP = Settings()
PAPER = Settings(seeds=tuple(range(10)), n=256, d=128, n_train=256, d_train=128, steps=1000)


def named(tau: float) -> dict[str, cs.Kernel]:
    """The kernels of Table 1."""
    return {
        "Gaussian": cs.Gaussian(tau=tau),
        "Laplacian": cs.Laplace(tau=tau),
        "gamma 0.5": cs.Exponential(gamma=0.5, tau=tau),
        "simple sum": cs.Sum(cs.Exponential(gamma=2, tau=tau), cs.Laplace(tau=tau)),
        "concatenation": cs.Concat(cs.Exponential(gamma=2, tau=tau), cs.Laplace(tau=tau)),
    }


def gram(z: Tensor, name: str, tau: float) -> Tensor:
    """k(z_i, z_j) as Sec. 5.2 writes it, from differences."""
    half = z.shape[1] // 2

    def power(x: Tensor, gamma: float) -> Tensor:
        squared = (x[:, None] - x).square().sum(dim=2)
        zero = squared == 0
        return torch.where(zero, 0.0, torch.where(zero, 1.0, squared) ** (gamma / 2))

    match name:
        case "Gaussian":
            return torch.exp(-power(z, 2) / (2 * tau))
        case "Laplacian":
            return torch.exp(-power(z, 1) / tau)
        case "gamma 0.5":
            return torch.exp(-power(z, 0.5) / tau)
        case "simple sum":
            return torch.exp(-power(z, 2) / tau) + torch.exp(-power(z, 1) / tau)
    first, second = z[:, :half], z[:, half:]
    return torch.exp(-power(first, 2) / tau) + torch.exp(-power(second, 1) / tau)


def transcribed(k: Tensor) -> Tensor:
    """Eq. (8) over a batch of two views, oneself left out, both views as anchors."""
    n = len(k) // 2
    partner = torch.arange(2 * n).roll(n)
    others = (k * (1 - torch.eye(2 * n, dtype=k.dtype))).sum(dim=1)
    return (others.log() - k[torch.arange(2 * n), partner].log()).mean()


def algorithm_2(z: Tensor, gamma: float, tau: float, sign: float, early: bool = False) -> Tensor:
    """Algorithm 2 line by line; sign +1 as printed, -1 as it must be.

    The diagonal is masked after the power, as printed, or `early`: before it as well.
    """
    n = len(z) // 2
    oneself = torch.eye(2 * n, dtype=torch.bool)
    squared = (z[:, None] - z).square().sum(dim=2)
    s = sign * (squared.masked_fill(oneself, 1.0) if early else squared) ** (gamma / 2) / tau
    s = s.masked_fill(oneself, -math.inf)
    partner = torch.arange(2 * n).roll(n)
    return -s.log_softmax(dim=1)[torch.arange(2 * n), partner].mean()


def batch(n: int, d: int, seed: int) -> tuple[Tensor, Tensor]:
    """Two views of random points, in general position."""
    generator = torch.Generator().manual_seed(seed)
    z1, step = torch.randn(2, n, d, dtype=torch.float64, generator=generator)
    return z1 / math.sqrt(d), (z1 + 0.5 * step) / math.sqrt(d)


def on_sphere(z: Tensor) -> Tensor:
    """Unit rows."""
    return z / z.norm(dim=1, keepdim=True)


def compared(settings: Settings, seed: int) -> dict[str, Any]:
    """Values, gradients, sums and halves on one batch."""
    tau, half = settings.tau, settings.d // 2
    z1, z2 = batch(settings.n, settings.d, seed)
    value_error = gradient_error = 0.0
    for name, kernel in named(tau).items():
        z = torch.cat([z1, z2]).requires_grad_()
        slow = transcribed(gram(z, name, tau))
        (expected,) = torch.autograd.grad(slow, z)
        fast = cs.InfoNCE(kernel)(z[: settings.n], z[settings.n :])
        (gradient,) = torch.autograd.grad(fast, z)
        value_error = max(value_error, abs(fast.item() - slow.item()))
        gradient_error = max(gradient_error, float((gradient - expected).abs().max()))
    gauss, laplace = cs.Exponential(gamma=2, tau=tau), cs.Laplace(tau=tau)
    loss_sum = cs.Weighted((0.5, cs.InfoNCE(laplace)), (0.5, cs.InfoNCE(gauss)))
    kernel_sum = cs.InfoNCE(cs.Sum(gauss, laplace))
    gaps, sum_errors = [], [0.0, 0.0]
    for stretch in (0.25, 1.0, 4.0):
        a, b = stretch * z1, stretch * z2
        z = torch.cat([a, b])
        gaps.append(float(kernel_sum(a, b) - loss_sum(a, b)))
        parts = [transcribed(torch.exp(-(torch.cdist(z, z) ** g) / tau)) for g in (1, 2)]
        one = abs(float(loss_sum(a, b)) - float(sum(parts)) / 2)
        two = abs(float(kernel_sum(a, b)) - float(transcribed(gram(z, "simple sum", tau))))
        sum_errors = [max(sum_errors[0], one), max(sum_errors[1], two)]

    def halves(first: cs.Kernel, second: cs.Kernel) -> cs.Weighted:
        left = cs.OnDims(cs.InfoNCE(first), 0, half)
        right = cs.OnDims(cs.InfoNCE(second), half, settings.d)
        return cs.Weighted((0.5, left), (0.5, right))

    table, section = halves(laplace, gauss), halves(gauss, laplace)
    turned = [z.roll(half, dims=1) for z in (z1, z2)]
    u1, u2 = on_sphere(z1), on_sphere(z2)
    simclr = cs.InfoNCE(cs.Cosine(tau=tau))(u1, u2)
    return {
        "value": value_error,
        "gradient": gradient_error,
        "spread": max(gaps) - min(gaps),
        "loss_sum": sum_errors[0],
        "kernel_sum": sum_errors[1],
        "halves": abs(float(table(z1, z2) - section(z1, z2))),
        "exchanged": abs(float(table(z1, z2) - section(*turned))),
        "once": abs(float(cs.InfoNCE(cs.Exponential(gamma=2, tau=tau))(u1, u2) - simclr)),
        "twice": abs(float(cs.InfoNCE(cs.Exponential(gamma=2, tau=2 * tau))(u1, u2) - simclr)),
    }


def trained(settings: Settings, seed: int, sign: float) -> dict[str, list[float]]:
    """Distance of positives and loss while free points on the sphere follow Algorithm 2."""
    z1, z2 = batch(settings.n_train, settings.d_train, seed)
    z = on_sphere(torch.cat([z1, z2]))
    n = settings.n_train
    curve: dict[str, list[float]] = {"distance": [], "loss": []}
    for _ in range(settings.steps + 1):
        z = z.detach().requires_grad_()
        loss = algorithm_2(z, 2.0, settings.tau, sign, early=True)
        curve["distance"].append(float((z[:n] - z[n:]).detach().norm(dim=1).mean()))
        curve["loss"].append(float(loss.detach()))
        (slope,) = torch.autograd.grad(loss, z)
        z = on_sphere(z.detach() - settings.lr * slope)
    return curve


def smallest(k: Tensor) -> float:
    """The smallest eigenvalue of a Gram matrix."""
    return float(torch.linalg.eigvalsh(k)[0])


def not_finite(settings: Settings, ours: bool) -> int:
    """Entries of the gradient that are not finite, over gamma 0.5 and 1."""
    count = 0
    for gamma in (0.5, 1.0):
        z = torch.cat(batch(settings.n, settings.d, settings.seeds[0])).requires_grad_()
        if ours:
            kernel = cs.Exponential(gamma=gamma, tau=settings.tau)
            loss = cs.InfoNCE(kernel)(z[: settings.n], z[settings.n :])
        else:
            loss = algorithm_2(z, gamma, settings.tau, -1.0)
        (slope,) = torch.autograd.grad(loss, z)
        count += int((~slope.isfinite()).sum())
    return count


def near(seed: int) -> tuple[float, float]:
    """Relative errors of log k in float32 at distance 1e-4: ours, and from the expansion."""
    generator = torch.Generator().manual_seed(seed)
    z, step = torch.randn(2, 64, 16, generator=generator)
    w = z + 1e-4 * on_sphere(step)
    exact = -torch.linalg.vector_norm(z.double() - w.double(), dim=1)
    ours = cs.Laplace(tau=1.0).log_paired(z, w).double()
    squares = z.square().sum(dim=1) + w.square().sum(dim=1) - 2 * (z * w).sum(dim=1)
    expanded = -squares.clamp(min=0).sqrt().double()
    off, away = (float(((x - exact) / exact).abs().mean()) for x in (ours, expanded))
    return off, away


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """All comparisons over the seeds."""
    tau = settings.tau
    signs = itertools.product((1.0, -1.0), repeat=2)
    corners = torch.tensor([[a, 0, b, 0] for a, b in signs]).double() / 2**0.5
    eigenvalues: dict[str, float] = {}
    for name in named(tau):
        z = torch.cat([batch(settings.n, settings.d, s)[0] for s in settings.seeds])
        eigenvalues[name] = min(smallest(gram(x, name, tau)) for x in (z, corners))
    line = torch.linspace(0, 1, 16, dtype=torch.float64)[:, None]
    rows = [compared(settings, seed) for seed in settings.seeds]
    return {
        "rows": rows,
        "declared": [int(kernel.positive_definite) for kernel in named(tau).values()],
        "eigenvalues": eigenvalues,
        "corners": {
            name: smallest(kernel.log(corners, corners).exp())
            for name, kernel in named(tau).items()
        },
        "gammas": list(settings.gammas),
        "by_gamma": [
            smallest(cs.Exponential(gamma=g, tau=tau).log(line, line).exp())
            for g in settings.gammas
        ],
        "trained": {
            form: [
                keep(f"{form} {seed}", lambda s=seed, x=sign: trained(settings, s, x))
                for seed in settings.seeds
            ]
            for form, sign in (("printed", 1.0), ("corrected", -1.0))
        },
        "not_finite": {"printed": not_finite(settings, False), "ours": not_finite(settings, True)},
        "near": [near(seed) for seed in settings.seeds],
        "curves": {
            name: kernel.log(torch.zeros(1, 2).double(), _line()).exp()[0].tolist()
            for name, kernel in named(tau).items()
            if name != "concatenation"
        },
    }


def _line() -> Tensor:
    """Points at distances 0 to 3 from the origin of the plane."""
    distance = torch.linspace(0, 3, 121, dtype=torch.float64)
    return torch.stack([distance, torch.zeros_like(distance)], dim=1)


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """Ten judgements."""
    of = {name: [row[name] for row in result["rows"]] for name in result["rows"][0]}
    ends = {
        form: {
            "distance_start": [curve["distance"][0] for curve in curves],
            "distance_end": [curve["distance"][-1] for curve in curves],
            "loss_fell_by": [curve["loss"][0] - curve["loss"][-1] for curve in curves],
        }
        for form, curves in result["trained"].items()
    }
    by_gamma = list(zip(result["gammas"], result["by_gamma"], strict=True))
    return [
        VALUES.judge(value_error=of["value"], gradient_error=of["gradient"]),
        DEFINITE.judge(smallest=list(result["eigenvalues"].values()), declared=result["declared"]),
        NEAR.judge(
            ours=[row[0] for row in result["near"]], expansion=[row[1] for row in result["near"]]
        ),
        SIGN.judge(printed=ends["printed"], corrected=ends["corrected"]),
        TWICE.judge(expected={"error": of["once"]}, ours={"error": of["twice"]}),
        SUMS.judge(
            expected={"spread": of["spread"]},
            ours={"kernel_sum_error": of["kernel_sum"], "loss_sum_error": of["loss_sum"]},
        ),
        HALVES.judge(printed={"error": of["halves"]}, corrected={"error": of["exchanged"]}),
        STRICTLY.judge(
            printed={"smallest": result["corners"]["concatenation"]},
            corrected={
                "smallest": result["corners"]["concatenation"],
                "simple_sum": result["corners"]["simple sum"],
            },
        ),
        GAMMA.judge(
            expected={"smallest": [x for _, x in by_gamma]},
            ours={"smallest": [x for g, x in by_gamma if g <= 2]},
        ),
        DIAGONAL.judge(
            expected={"not_finite": result["not_finite"]["printed"]},
            ours={"not_finite": result["not_finite"]["ours"]},
        ),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """The kernels, what the missing minus does, and where positive definiteness ends."""
    canvas, axes = style.canvas(1, 3)
    kernels, sign, gamma = axes[0]
    distances = _line()[:, 0].tolist()
    for name, values in result["curves"].items():
        kernels.plot(distances, values, label=name.replace("gamma 0.5", r"$\gamma = 0.5$"))
    kernels.legend()
    style.label(kernels, r"$\|z - w\|$", "$k(z, w)$", r"kernels of Table 1, $\tau = 0.5$")
    for i, (form, curves) in enumerate(result["trained"].items()):
        for j, curve in enumerate(curves):
            text = {"printed": "as printed", "corrected": "with the minus"}[form]
            sign.plot(
                curve["distance"], color=style.COLOURS[1 - i], label=None if j else text, alpha=0.8
            )
    sign.axhline(2, color=style.GREY, linestyle=":", linewidth=1)
    sign.legend(loc="center right")
    style.label(
        sign, "step", r"positives: mean $\|z_1 - z_2\|$", "Algorithm 2: antipodes (2) or union"
    )
    values = result["by_gamma"]
    colours = [style.COLOURS[0 if g <= 2 else 1] for g in result["gammas"]]
    gamma.axhline(0, color=style.GREY, linewidth=0.8)
    gamma.plot(result["gammas"], values, color=style.GREY, linewidth=0.8)
    gamma.scatter(result["gammas"], values, color=colours, zorder=3, s=24)
    style.label(
        gamma, r"$\gamma$", "smallest eigenvalue of $K$", r"positive definite up to $\gamma = 2$"
    )
    return canvas
