"""Props 4.3, 4.4, Thm 4.5, Cor. 4.6: the kernel of one hidden layer, and how clusters move.

Paper: calder2025, Sec. 4.2.1, eqs. (16)-(21), (37), Remark 4.4.

Judged: eq. (20) against autograd; the infinite width like width^-1/2; points of a cluster share
their velocity up to O(delta), with a smooth activation; that velocity is -|xi|^2 beta sum of the
cluster's gradients; small clusters move slower.

Remarks of ours (each claim says which). Prop. 4.4 asks for Gaussian rows of B; it needs them
zero-mean and isotropic. Eq. (21) puts n_q grad L(xi_q) for the sum of the cluster's gradients,
which is another number where the initial map R is arbitrary, as eq. (17) has it; the common
velocity survives. Thm 4.5 needs orthogonal centres; those of Fig. 5 are collinear, and there the
other clusters' gradients mix in.

Letters: M is `width`, the radius of clusters delta. The gradient is that of the total loss (see
V5). Deviations: R assigns random points of the circle; ReLU is not differentiable, its spread of
velocities falls more slowly than delta, and is shown beside tanh.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import chiaroscuro as cs
from chiaroscuro.labs import Keep, Remark, Stated, at_once, style
from chiaroscuro.labs.calder2025.kernel_flow import slope

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

KERNEL = Stated(
    "V7.kernel",
    "the kernel of one hidden layer is eq. (20)",
    "Prop. 4.3, eq. (20)",
    "identity",
    "error < 1e-10",
)
WIDTH = Stated(
    "V7.width",
    "with ReLU and growing width the kernel tends to its limit like width^-1/2",
    "Prop. 4.4",
    "converges",
    "slope > -0.65 and slope < -0.35",
    enough="n_draws >= 5",
)
GAUSSIAN = Remark(
    "V7.gaussian",
    "Prop. 4.4: rows with a Gaussian distribution",
    "for Gaussian rows of any mean the kernel tends to that limit.",
    "error < 0.1",
    "for zero-mean isotropic Gaussian rows, as is usual, it does.",
    "error < 0.1",
)
COMMON = Stated(
    "V7.common",
    "with a smooth activation the velocities inside a cluster differ by O(delta)",
    "Thm 4.5, eq. (21)",
    "order 1",
    "slope > 0.9 and slope < 1.1",
)
RELU = Stated(
    "V7.relu",
    "with ReLU they come together more slowly than with tanh",
    "Thm 4.5: a differentiable activation",
    "not covered",
    "slope_relu < slope_tanh",
    kind="empirical",
)
VELOCITY = Stated(
    "V7.velocity",
    "for orthogonal centres the velocity is -|xi|^2 beta times the sum of the cluster's gradients, "
    "up to O(delta)",
    "Thm 4.5, proof",
    "order 1",
    "slope > 0.9 and slope < 1.1 and smallest_error < 0.01",
)
EQUATION = Remark(
    "V7.arbitrary",
    "Thm 4.5, eq. (21), with an arbitrary map R imposed from outside the network",
    "the velocity is -(n_q/n) |xi|^2 beta n grad L(xi_q) for every R.",
    "error < 0.05",
    "it is -|xi|^2 beta times the sum over the cluster, whatever R is; the two agree for the "
    "bounded network of eq. (18), which makes R Lipschitz.",
    "error < 0.05",
)
LIMIT = Stated(
    "V7.limit",
    "at large width with ReLU beta is 1/2",
    "Cor. 4.6",
    "1/2",
    "error < 0.1",
    enough="width >= 2048",
)
COLLINEAR = Remark(
    "V7.collinear",
    "Fig. 5 beside the hypotheses of Thm 4.5",
    "the velocities of Thm 4.5 describe the collinear centres of Fig. 5, at -3, -1, 1, 3.",
    "error < 0.05",
    "they describe orthogonal centres, as the theorem assumes.",
    "error < 0.05",
)
SMALL = Stated(
    "V7.small",
    "small clusters move slower, over clusters of 2 to 16 times the smallest size (in proportion "
    "to their size the slope would be 1)",
    "Remark 4.4",
    "scaled by the share of the cluster",
    "slope_low > 0",
    enough="n_draws >= 10",
)
CLAIMS = (KERNEL, WIDTH, GAUSSIAN, COMMON, RELU, VELOCITY, EQUATION, LIMIT, COLLINEAR, SMALL)


@dataclass(frozen=True)
class Settings:
    """Networks and clusters.

    Args:
        seeds: weights, noise and latents each.
        per: points of a cluster, of which the first sits at its centre.
        width: hidden units of each output, M.
        widths: of the passage to the limit.
        deltas: radii of the clusters.
        n_draws: networks over which widths and sizes are averaged.
        sizes: of the clusters of Remark 4.4.
        tau: 0.5 as in SimCLR.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    per: int = 8
    width: int = 2048
    widths: tuple[int, ...] = (32, 64, 128, 256, 512, 1024, 2048)
    deltas: tuple[float, ...] = tuple(0.2 * 2.0**-i for i in range(8))
    n_draws: int = 20
    sizes: tuple[int, ...] = (4, 8, 16, 32, 64)
    tau: float = 0.5


QUICK = Settings(seeds=(0,), width=512, widths=(32, 128, 512), n_draws=5)
LAPTOP = Settings()
PAPER = Settings(seeds=tuple(range(10)), width=8192, n_draws=100)

OUTPUTS = 2


def orthogonal(n_clusters: int) -> Tensor:
    """Centres on the axes, at different distances."""
    return torch.diag(1.0 + 0.25 * torch.arange(n_clusters, dtype=torch.float64))


def clustered(centres: Tensor, sizes: tuple[int, ...], delta: float, seed: int) -> Any:
    """Points within delta of their centres, the first of each at it (eq. 16), and labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    noise = torch.randn(len(labels), centres.shape[1], dtype=torch.float64, generator=generator)
    length = torch.rand(len(labels), 1, dtype=torch.float64, generator=generator)
    noise = delta * length * noise / noise.norm(dim=1, keepdim=True)
    starts = torch.tensor([0, *sizes[:-1]]).cumsum(0)
    noise[starts] = 0.0
    return centres[labels] + noise, labels, starts


def circle(n: int, seed: int) -> Tensor:
    """Random latents: n points of the unit circle, the arbitrary map R."""
    generator = torch.Generator().manual_seed(1000 + seed)
    angle = 2 * math.pi * torch.rand(n, dtype=torch.float64, generator=generator)
    return torch.stack([angle.cos(), angle.sin()], dim=1)


def total(tau: float) -> Callable[[Tensor], Tensor]:
    """The generalised loss of an invariant map: both views are z."""
    objective = cs.Generalised("log1p", cs.Gaussian(tau=tau))
    return lambda z: objective(z, z)


def moved(
    centres: Tensor, sizes: tuple[int, ...], delta: float, seed: int, settings: Settings, act: Any
) -> dict[str, float]:
    """True velocities of one hidden layer, their spread in clusters, and two predictions."""
    x, labels, starts = clustered(centres, sizes, delta, seed)
    net = cs.dynamics.OneHidden(x.shape[1], settings.width, OUTPUTS, act, seed=seed).double()
    B = net.B.detach()
    grad = cs.dynamics.gradient(total(settings.tau), circle(len(x), seed))
    velocity = -cs.dynamics.kernel_action(net, x, grad)
    motion = cs.dynamics.cluster_motion(velocity, labels)
    beta = cs.dynamics.cluster_beta(B, centres, OUTPUTS, act)
    of = cs.dynamics.cluster_velocity
    summed = of(grad, labels, centres, beta)
    n_q = torch.tensor(sizes, dtype=grad.dtype)[labels]
    strength = (centres.square().sum(dim=1, keepdim=True) * beta)[labels]
    printed = -n_q[:, None] * strength * grad[starts][labels]  # n_q grad L(xi_q)
    size = velocity.norm()
    return {
        "spread": float(motion.spread.square().mean().sqrt() / (size / math.sqrt(len(x)))),
        "summed": float((velocity - summed).norm() / size),
        "printed": float((velocity - printed).norm() / size),
        "half": float((velocity - of(grad, labels, centres, 0.5)).norm() / size),
    }


def limits(settings: Settings) -> dict[str, Any]:
    """Relative error of the kernel to its limit, by width; and at the largest with a mean."""
    generator = torch.Generator().manual_seed(settings.seeds[0])
    x = torch.randn(6, 4, dtype=torch.float64, generator=generator)
    limit = cs.dynamics.limit_kernel(x, 1)

    def error(width: int, draw: int, mean: float) -> float:
        rows = torch.Generator().manual_seed(draw)
        B = mean + torch.randn(width, 4, dtype=torch.float64, generator=rows)
        K = cs.dynamics.one_hidden_kernel(B, x, 1, torch.relu)
        return float((K - limit).norm() / limit.norm())

    draws = range(settings.n_draws)
    return {
        "width": [sum(error(m, s, 0.0) for s in draws) / len(draws) for m in settings.widths],
        "mean": error(settings.widths[-1], 0, 1.0),
        "zero": error(settings.widths[-1], 0, 0.0),
    }


def by_size(settings: Settings, seed: int) -> list[float]:
    """Speeds of clusters of different sizes, each starting in one place of its own."""
    centres = torch.eye(len(settings.sizes), dtype=torch.float64)
    x, labels, _ = clustered(centres, settings.sizes, 0.01, seed)
    net = cs.dynamics.OneHidden(x.shape[1], 256, OUTPUTS, seed=seed).double()
    grad = cs.dynamics.gradient(total(settings.tau), circle(len(settings.sizes), seed)[labels])
    velocity = -cs.dynamics.kernel_action(net, x, grad)
    return cs.dynamics.cluster_motion(velocity, labels).speeds.tolist()


def kernel_error(seed: int) -> float:
    """Eq. (20) against autograd, for three activations."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(7, 5, dtype=torch.float64, generator=generator)
    worst = 0.0
    for act in (torch.tanh, torch.relu, torch.nn.functional.softplus):
        net = cs.dynamics.OneHidden(5, 9, 3, act, seed=seed).double()
        exact = cs.dynamics.one_hidden_kernel(net.B.detach(), x, 3, act)
        worst = max(worst, float((cs.dynamics.neural_kernel(net, x) - exact).abs().max()))
    return worst


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """Kernels, then velocities by delta, then by size."""
    centres, sizes = orthogonal(4), (settings.per,) * 4
    line = torch.tensor([[-3.0, 0], [-1, 0], [1, 0], [3, 0]], dtype=torch.float64)
    acts = {"tanh": torch.tanh, "relu": torch.relu}
    by_delta = {
        name: [
            [moved(centres, sizes, delta, seed, settings, act) for delta in settings.deltas]
            for seed in settings.seeds
        ]
        for name, act in acts.items()
    }
    least = settings.deltas[-1]
    return {
        "kernel": [kernel_error(seed) for seed in settings.seeds],
        "widths": list(settings.widths),
        "limits": keep("limits", lambda: limits(settings)),
        "deltas": list(settings.deltas),
        "by_delta": by_delta,
        "collinear": [
            moved(line, sizes, least, seed, settings, torch.tanh)["summed"]
            for seed in settings.seeds
        ],
        "sizes": list(settings.sizes),
        "speeds": [by_size(settings, seed) for seed in range(settings.n_draws)],
        "width": settings.width,
        "n_draws": settings.n_draws,
    }


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """Ten judgements."""
    deltas, width, draws = result["deltas"], result["width"], result["n_draws"]
    tanh, relu = result["by_delta"]["tanh"], result["by_delta"]["relu"]

    def of(rows: Any, name: str) -> list[float]:
        return [slope(deltas, [at[name] for at in row]) for row in rows]

    last = {name: [row[-1][name] for row in tanh] for name in ("summed", "printed")}
    spread = {"tanh": of(tanh, "spread"), "relu": of(relu, "spread")}
    slopes = torch.tensor(
        [slope(result["sizes"], speeds) for speeds in result["speeds"]], dtype=torch.float64
    )
    low = float(slopes.mean() - 2 * slopes.std() / math.sqrt(len(slopes)))
    limit = result["limits"]
    return [
        KERNEL.judge(error=result["kernel"]),
        WIDTH.judge(slope=slope(result["widths"], limit["width"]), n_draws=draws),
        GAUSSIAN.judge(expected={"error": limit["mean"]}, ours={"error": limit["zero"]}),
        COMMON.judge(slope=spread["tanh"]),
        RELU.judge(slope_relu=spread["relu"], slope_tanh=spread["tanh"]),
        VELOCITY.judge(slope=of(tanh, "summed"), smallest_error=last["summed"]),
        EQUATION.judge(expected={"error": last["printed"]}, ours={"error": last["summed"]}),
        LIMIT.judge(error=[row[-1]["half"] for row in relu], width=width),
        COLLINEAR.judge(expected={"error": result["collinear"]}, ours={"error": last["summed"]}),
        SMALL.judge(slope_low=low, slope_mean=float(slopes.mean()), n_draws=draws),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """Width, radius and size: three passages to a limit."""
    canvas, axes = style.canvas(1, 3)
    width, delta, size = axes[0]
    errors = result["limits"]["width"]
    width.plot(result["widths"], errors, "o-")
    guide = [errors[0] * math.sqrt(result["widths"][0] / m) for m in result["widths"]]
    width.plot(result["widths"], guide, color=style.GREY, linestyle="--", linewidth=0.8)
    width.set_xscale("log", base=2)
    width.set_yscale("log")
    style.label(width, "width", "relative error of K", "limit kernel: like width^-1/2")
    for i, name in enumerate(("tanh", "relu")):
        for j, row in enumerate(result["by_delta"][name]):
            values = [at["spread"] for at in row]
            delta.plot(
                result["deltas"], values, "o-", color=style.COLOURS[i], label=None if j else name
            )
    delta.set_xscale("log")
    delta.set_yscale("log")
    delta.legend()
    style.label(delta, "delta", "spread of velocities / speed", "inside a cluster: like delta")
    speeds = torch.tensor(result["speeds"])
    for row in result["speeds"]:
        size.plot(result["sizes"], row, color=style.GREY, alpha=0.3, linewidth=0.7)
    size.plot(result["sizes"], speeds.log().mean(dim=0).exp().tolist(), "o-")
    size.set_xscale("log", base=2)
    size.set_yscale("log")
    style.label(size, "points of the cluster", "speed", "small clusters are slower")
    return canvas
