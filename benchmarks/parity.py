"""The same numbers as the peers, where the peers are right: 1000 random cases each.

Values and gradients of our objectives against lightly, pytorch-metric-learning, open_clip and
torch's own cross-entropy, in float64 where the peer allows it, else float32. The cases stay where
the peers are right: ordinary norms, tau at least 0.05 (0.2 for pytorch-metric-learning's SupCon,
which drops anchors whose loss rounds to zero). A second table shows what happens outside.

    python benchmarks/parity.py
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

import chiaroscuro as cs
import peers
from environment import save

Loss = Callable[[Tensor, Tensor], Tensor]


def nt_xent(tau: float) -> cs.InfoNCE:
    """SimCLR's loss."""
    return cs.InfoNCE(cs.Cosine(tau=tau))


def clip(tau: float) -> cs.InfoNCE:
    """CLIP's loss."""
    return cs.InfoNCE(cs.Cosine(tau=tau), cs.OtherView())


def decoupled(tau: float) -> cs.InfoNCE:
    """The decoupled loss."""
    return cs.InfoNCE(cs.Cosine(tau=tau), cs.AllButPair())


def vicreg(d: int) -> cs.VICReg:
    """VICReg as widespread code computes it: invariance over d, half the variance term."""
    return cs.VICReg(invariance=25 / d, variance=12.5)


# Each case: ours and theirs as functions of two views, given tau, labels and the dimension.
CASES: dict[str, Callable[[float, Tensor, int], tuple[Loss, Loss]]] = {
    "lightly NTXentLoss": lambda tau, y, d: (
        nt_xent(tau),
        lambda a, b: peers.lightly_nt_xent(a, b, tau),
    ),
    "pytorch-metric-learning NTXentLoss": lambda tau, y, d: (
        nt_xent(tau),
        lambda a, b: peers.pml_nt_xent(a, b, tau),
    ),
    "textbook cross-entropy": lambda tau, y, d: (
        nt_xent(tau),
        lambda a, b: peers.textbook_nt_xent(a, b, tau),
    ),
    "torch cross_entropy, both ways": lambda tau, y, d: (
        clip(tau),
        lambda a, b: peers.torch_cross_entropy_clip(a, b, tau),
    ),
    "open_clip ClipLoss": lambda tau, y, d: (
        clip(tau),
        lambda a, b: peers.open_clip_clip(a, b, tau),
    ),
    "lightly DCLLoss": lambda tau, y, d: (
        decoupled(tau),
        lambda a, b: peers.lightly_dcl(a, b, tau),
    ),
    "pytorch-metric-learning SupConLoss": lambda tau, y, d: (
        lambda a, b: cs.SupCon(cs.Cosine(tau=max(tau, 0.2)))(a, b, y),
        lambda a, b: peers.pml_supcon(a, b, y, max(tau, 0.2)),
    ),
    "lightly VICRegLoss": lambda tau, y, d: (vicreg(d), peers.lightly_vicreg),
    "lightly NegativeCosineSimilarity": lambda tau, y, d: (
        lambda a, b: cs.BYOL()(a, b),
        lambda a, b: 2 + 2 * peers.lightly_negative_cosine(a, b.detach()),
    ),
}


def gap(ours: Loss, theirs: Loss, z1: Tensor, z2: Tensor) -> tuple[float, float]:
    """Largest difference of the values and of the gradients, relative to max(1, |theirs|)."""
    values, gradients = [], []
    for loss in (ours, theirs):
        a, b = (z.clone().requires_grad_() for z in (z1, z2))
        value = loss(a, b)
        value.backward()
        zero = torch.zeros_like(a)
        gradients.append(torch.cat([zero if x.grad is None else x.grad for x in (a, b)]))
        values.append(float(value.detach()))
    value = abs(values[0] - values[1]) / max(1.0, abs(values[1]))
    scale = max(1.0, float(gradients[1].abs().max()))
    return value, float((gradients[0] - gradients[1]).abs().max()) / scale


def compare(name: str, cases: int = 1000) -> dict[str, float]:
    """The worst disagreement over random batches of random size, dimension and temperature."""
    draw = torch.Generator().manual_seed(0)
    worst = {"value": 0.0, "gradient": 0.0}
    for _ in range(cases):
        n, d = (
            int(torch.randint(low, high, (), generator=draw)) for low, high in ((2, 49), (2, 65))
        )
        tau = math.exp(float(torch.rand((), generator=draw)) * math.log(20) + math.log(0.05))
        z1 = torch.randn(n, d, generator=draw, dtype=torch.float64)
        z2 = z1 + torch.rand((), generator=draw) * torch.randn(n, d, generator=draw).double()
        labels = torch.randint(0, max(2, n // 4), (n,), generator=draw)
        labels[0], labels[1] = 0, 1  # at least two classes
        value, gradient = gap(*CASES[name](tau, labels, d), z1, z2)
        worst = {"value": max(worst["value"], value), "gradient": max(worst["gradient"], gradient)}
    return worst


def outside() -> dict[str, dict[str, float | str]]:
    """Losses where peers go wrong, beside the same formula in float64."""
    draw = torch.Generator().manual_seed(1)
    z1 = torch.randn(32, 64, generator=draw)
    z2 = 0.2 * z1 + torch.randn(32, 64, generator=draw)
    zero = z1.clone()
    zero[3] = 0
    settings = {
        "tau 0.001": (z1, z2, 1e-3),
        "tau 0.01, float16": (z1.half(), z2.half(), 1e-2),
        "tau 0.00001, float16": (z1.half(), z2.half(), 1e-5),
        "a zero row, float16": (zero.half(), z2.half(), 0.5),
        "norms of 1e20": (z1 * 1e20, z2, 0.5),
    }
    losses = {
        "ours": lambda a, b, tau: nt_xent(tau)(a, b),
        "lightly": peers.lightly_nt_xent,
        "pytorch-metric-learning": peers.pml_nt_xent,
        "textbook": peers.textbook_nt_xent,
    }
    table: dict[str, dict[str, float | str]] = {}
    for setting, (a, b, tau) in settings.items():
        exact = float(peers.textbook_nt_xent(*_safe(a.double(), b.double()), tau))
        row: dict[str, float | str] = {"float64": exact}
        for name, loss in losses.items():
            value = float(loss(a, b, tau))
            row[name] = value if math.isfinite(value) else str(value)
        table[setting] = row
    return table


def _safe(*views: Tensor) -> list[Tensor]:
    """Unit rows, as the textbook form needs them to be right at extreme norms."""
    return [z / z.norm(dim=1, keepdim=True).clamp(min=1e-300) for z in views]


def main() -> None:
    """Compare, print and save; fail if anything is further apart than 1e-6."""
    result = {"cases": 1000, "worst disagreement": {}, "outside": outside()}
    for name in CASES:
        worst = compare(name)
        result["worst disagreement"][name] = worst
        print(
            f"{name:36s} value {worst['value']:.1e}  gradient {worst['gradient']:.1e}", flush=True
        )
    for setting, row in result["outside"].items():
        print(
            f"{setting:24s}", {k: v if isinstance(v, str) else round(v, 4) for k, v in row.items()}
        )
    print(save("parity", result, "python benchmarks/parity.py"))
    if max(max(row.values()) for row in result["worst disagreement"].values()) > 1e-6:
        raise SystemExit("further apart than 1e-6")


if __name__ == "__main__":
    main()
