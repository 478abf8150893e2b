"""Every loss in the table of equivalents of the guide equals what the other library computes.

The formulas of the other libraries are written out here, in float64, from their documentation.
"""

import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import chiaroscuro as cs

PAGE = Path(__file__).resolve().parents[1] / "docs" / "guide" / "migrate.md"
T, S, N, D = 0.3, 5.0, 12, 7
GENERATOR = torch.Generator().manual_seed(0)
Z1, Z2 = (torch.randn(N, D, generator=GENERATOR, dtype=torch.float64) for _ in range(2))
LABELS = torch.arange(N) % 4
DIAGONAL = torch.eye(N, dtype=torch.bool)


def cosines(a, b):
    return F.normalize(a, dim=1) @ F.normalize(b, dim=1).T


def ntxent(z1, z2):
    """Cross-entropy of each of the 2n rows with its partner as the class, without itself."""
    z = torch.cat([z1, z2])
    logits = cosines(z, z) / T
    logits = logits.masked_fill(torch.eye(2 * N, dtype=torch.bool), -torch.inf)
    partner = torch.arange(2 * N).roll(N)
    return F.cross_entropy(logits, partner)


def supcon(z1, z2):
    """The mean over positives of log-probabilities, outside of the logarithm, then over anchors."""
    z, y = torch.cat([z1, z2]), LABELS.repeat(2)
    itself = torch.eye(2 * N, dtype=torch.bool)
    logits = (cosines(z, z) / T).masked_fill(itself, -torch.inf)
    log_p = logits - logits.logsumexp(1, keepdim=True)
    positive = (y[:, None] == y) & ~itself
    return -torch.stack([log_p[i][positive[i]].mean() for i in range(2 * N)]).mean()


def clip(z1, z2):
    logits = S * cosines(z1, z2)
    target = torch.arange(N)
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


def ranking(z1, z2):
    return F.cross_entropy(S * cosines(z1, z2), torch.arange(N))


def barlow(z1, z2):
    a, b = ((z - z.mean(0)) / z.std(0, correction=0) for z in (z1, z2))
    c = a.T @ b / N
    on = (c.diagonal() - 1).square().sum()
    off = c.square().sum() - c.diagonal().square().sum()
    return on + 0.005 * off


def vicreg(z1, z2):
    spread = lambda z: F.relu(1 - (z.var(0) + 1e-4).sqrt()).mean()
    off = ~torch.eye(D, dtype=torch.bool)
    covariance = lambda z: torch.cov(z.T)[off].square().sum() / D
    return (
        25 * F.mse_loss(z1, z2)
        + 25 * (spread(z1) + spread(z2)) / 2
        + covariance(z1)
        + covariance(z2)
    )


THEIRS = {
    "lightly `NTXentLoss(temperature=t)`": ntxent,
    "lightly `BarlowTwinsLoss()`": barlow,
    "lightly `VICRegLoss()`": vicreg,
    "pytorch-metric-learning `NTXentLoss(temperature=t)`": ntxent,
    "pytorch-metric-learning `SupConLoss(temperature=t)`": supcon,
    "open_clip `ClipLoss()` with `logit_scale=s`": clip,
    "sentence-transformers `MultipleNegativesRankingLoss(scale=s)`": ranking,
    "sentence-transformers `MultipleNegativesSymmetricRankingLoss(scale=s)`": clip,
}


def rows():
    table = PAGE.read_text("utf-8").split("## Losses")[1].split("\n## ")[0]
    cells = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| ")]
    return {theirs.strip(): ours.strip() for theirs, ours in cells[1:]}


@pytest.mark.parametrize("theirs", THEIRS)
def test_the_table_of_equivalents(theirs):
    (ours,) = re.findall(r"^`([^`]+)`$", rows()[theirs])
    objective = eval(ours, {"cs": cs, "t": T, "s": S, "d": D})  # noqa: S307
    extra = (LABELS,) if "SupCon" in ours else ()
    z1, z2 = (z.clone().requires_grad_() for z in (Z1, Z2))
    value, expected = objective(z1, z2, *extra), THEIRS[theirs](z1, z2)
    assert torch.allclose(value, expected, rtol=1e-10)
    for mine, other in zip(
        torch.autograd.grad(value, (z1, z2)), torch.autograd.grad(expected, (z1, z2)), strict=True
    ):
        assert torch.allclose(mine, other, rtol=1e-8, atol=1e-12)


def test_the_row_that_says_it_differs_does():
    sim = lambda a, b: cosines(a, b).masked_fill(DIAGONAL, -torch.inf) / T
    half = lambda a, b: (
        -cosines(a, b).diagonal() / T + sim(a, a).logsumexp(1) + sim(a, b).logsumexp(1)
    ).mean()
    theirs = (half(Z1, Z2) + half(Z2, Z1)) / 2
    ours = cs.InfoNCE(cs.Cosine(tau=T), cs.AllButPair())(Z1, Z2)
    assert "differs" in rows()["lightly `DCLLoss(temperature=t)`"]
    assert abs(float(theirs - ours)) > 0.1


def test_every_row_of_the_table_is_compared_or_says_why_not():
    known = {*THEIRS, "lightly `DCLLoss(temperature=t)`"}
    rest = set(rows()) - known
    assert all("Cached" in row or "cross_entropy" in row for row in rest), rest
