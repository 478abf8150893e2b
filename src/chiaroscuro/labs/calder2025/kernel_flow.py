"""Prop. 4.1: outputs follow the neural kernel, for any network and any loss.

Paper: calder2025, Prop. 4.1 (eqs. 9-12) and Remark 4.2 (eq. 13).

One step of gradient descent of size lr on the weights moves the outputs by -lr K grad L plus terms
of second order: relative to the movement, the error of that prediction falls linearly with lr.
Three networks and four losses are tried.

Remarks of ours (each claim says which). Eq. (11) is for a loss (1/n) sum_i L(z_i), with grad L of
one term. A contrastive loss does not separate: there the gradient is that of the total loss and no
further 1/n appears. Remark 4.2 sets K_ij to identity matrices to obtain eq. (13); eq. (11) then
gives the mean gradient to every point. What gives eq. (13) is K_ij = n delta_ij I.

Letters: the step sigma is lr. Deviations: none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import chiaroscuro as cs
from chiaroscuro.labs import Keep, Remark, Stated, at_once, style

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

LINEAR = Stated(
    "V5.linear",
    "one step of training moves outputs as the neural kernel says: the relative error falls "
    "linearly with the step, for every network and loss tried",
    "Prop. 4.1, eqs. (11), (12)",
    "slope 1",
    "slope > 0.9 and slope < 1.1 and smallest_error < 1e-3",
)
SEPARABLE = Remark(
    "V5.separable",
    "Prop. 4.1, eq. (11), with the contrastive loss in place of a mean over samples",
    "z_i' = -(1/n) sum_j K_ij dL/dz_j, with the partial derivatives of the contrastive loss.",
    "error < 1e-3",
    "with the gradient of eq. (7), n times the partial derivative, eq. (11) is exact: z_i' = "
    "-sum_j K_ij dL/dz_j.",
    "error < 1e-3",
)
IDENTITY = Remark(
    "V5.identity",
    "Remark 4.2, eq. (13): K_ij set to identity matrices",
    "K_ij = I for all i, j gives eq. (13).",
    "error < 1e-10",
    "K_ij = n delta_ij I does: identity matrices on the diagonal, in the units of eq. (7).",
    "error < 1e-10",
)
CLAIMS = (LINEAR, SEPARABLE, IDENTITY)


@dataclass(frozen=True)
class Settings:
    """Networks, losses and steps.

    Args:
        seeds: data and weights each.
        n: pairs; both views go through the network.
        width: of the hidden layers.
        steps: sizes lr of the one step, halved again and again.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    n: int = 12
    width: int = 32
    steps: tuple[float, ...] = tuple(1e-2 * 2.0**-i for i in range(10))


QUICK = Settings(seeds=(0,), n=6, width=16)
LAPTOP = Settings()
PAPER = Settings(seeds=tuple(range(5)), n=64, width=256)

D, OUTPUTS = 16, 3  # inputs (a 4 x 4 picture for the convolution) and outputs


def networks(width: int, seed: int) -> dict[str, nn.Module]:
    """One hidden layer (eq. 18), four layers (App. B), and a convolution."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made: dict[str, nn.Module] = {
            "one hidden": cs.dynamics.OneHidden(D, width, OUTPUTS, seed=seed),
            "four layers": nn.Sequential(
                *(nn.Linear(D, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()),
                *(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, OUTPUTS)),
            ),
            "convolution": nn.Sequential(
                *(nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 4, 3), nn.GELU()),
                *(nn.Flatten(), nn.Linear(16, OUTPUTS)),
            ),
        }
    return {name: net.double() for name, net in made.items()}


def losses(n: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """Losses of both views stacked."""
    of = {
        "InfoNCE": cs.InfoNCE(cs.Cosine(tau=0.5)),
        "generalised": cs.Generalised("log1p", cs.Gaussian(tau=0.5)),
        "VICReg": cs.VICReg(),
        "spectral": cs.SpectralContrastive(),
    }
    return {name: lambda z, f=f: f(z[:n], z[n:]) for name, f in of.items()}


def errors(net: nn.Module, x: Tensor, loss: Callable, steps: tuple[float, ...]) -> dict[str, list]:
    """Relative error of the predicted movement at each step: as it is, and with a further 1/n."""
    K = cs.dynamics.neural_kernel(net, x)
    with torch.no_grad():
        z = net(x)
    grad = cs.dynamics.gradient(loss, z)
    predicted = -torch.einsum("ijkl,jl->ik", K, grad)
    by_scaling: dict[str, list[float]] = {"total": [], "over n": []}
    for lr in steps:
        flow = cs.dynamics.training_flow(loss, net, x, cs.dynamics.Steps(lr, 1))
        moved = (flow.z[-1] - flow.z[0]) / lr
        for name, guess in (("total", predicted), ("over n", predicted / len(x))):
            by_scaling[name].append(float((moved - guess).norm() / moved.norm()))
    return by_scaling


def slope(x: list[float], y: list[float]) -> float:
    """Of the straight line through (log x, log y)."""
    a, b = (torch.tensor(v, dtype=torch.float64).log() for v in (x, y))
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).sum() / (a * a).sum())


def remark(seed: int, n: int) -> dict[str, float]:
    """Eq. (11) for a separable loss under both kernels, against eq. (13)."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(n, OUTPUTS, dtype=torch.float64, generator=generator)
    grad = cs.dynamics.gradient(lambda z: torch.log1p(z.square().sum(dim=1)).sum(), z)
    eye = torch.eye(OUTPUTS, dtype=z.dtype)
    kernels = {
        "printed": eye.expand(n, n, OUTPUTS, OUTPUTS),
        "corrected": n * torch.einsum("ij,kl->ijkl", torch.eye(n, dtype=z.dtype), eye),
    }
    return {
        form: float((torch.einsum("ijkl,jl->ik", K, grad) / n - grad).abs().max())
        for form, K in kernels.items()
    }


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """One step of every network on every loss."""
    rows = []
    for seed in settings.seeds:
        generator = torch.Generator().manual_seed(seed)
        clean, *noise = torch.randn(3, settings.n, D, dtype=torch.float64, generator=generator)
        x = torch.cat([clean + 0.3 * noise[0], clean + 0.3 * noise[1]])
        for name, net in networks(settings.width, seed).items():
            for what, loss in losses(settings.n).items():
                differences = errors(net, x, loss, settings.steps)
                rows.append({"network": name, "loss": what, "seed": seed, **differences})
    remarks = [remark(seed, settings.n) for seed in settings.seeds]
    return {"steps": list(settings.steps), "rows": rows, "remark": remarks}


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """The slope of the error, and two errata."""
    rows, steps = result["rows"], result["steps"]
    last = [row["total"][-1] for row in rows]
    return [
        LINEAR.judge(slope=[slope(steps, row["total"]) for row in rows], smallest_error=last),
        SEPARABLE.judge(
            expected={"error": [row["over n"][-1] for row in rows]}, ours={"error": last}
        ),
        IDENTITY.judge(
            expected={"error": [row["printed"] for row in result["remark"]]},
            ours={"error": [row["corrected"] for row in result["remark"]]},
        ),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """Relative error of the prediction against the step, network by network."""
    names = list(dict.fromkeys(row["network"] for row in result["rows"]))
    whats = list(dict.fromkeys(row["loss"] for row in result["rows"]))
    canvas, axes = style.canvas(1, len(names))
    steps = result["steps"]
    for axis, name in zip(axes[0], names, strict=True):
        rows = [row for row in result["rows"] if row["network"] == name]
        for row in rows:
            colour = style.COLOURS[whats.index(row["loss"])]
            first = row["seed"] == rows[0]["seed"]
            axis.plot(steps, row["total"], color=colour, label=row["loss"] if first else None)
            axis.plot(steps, row["over n"], color=colour, linestyle=":", linewidth=1)
        guide = [rows[0]["total"][-1] * 0.3 * s / steps[-1] for s in steps]
        axis.plot(steps, guide, color=style.GREY, linestyle="--", linewidth=0.8)
        axis.text(steps[-1], guide[-1] * 0.12, "slope 1", color=style.GREY, fontsize=8)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_ylim(1e-11, 4)
        style.label(axis, "step lr", "relative error of -K grad L", name)
    axes[0, 0].legend(title="dotted: with a further 1/n", title_fontsize=7.5, loc="lower right")
    return canvas
