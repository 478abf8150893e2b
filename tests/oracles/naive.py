"""The definitions, transcribed term by term in float64: slow, obvious, and free of our code.

Only the *parameters* of an object are read here (its tau, its weights), never its methods. A
formula of two vectors also works on whole blocks of them, over the last dimension; `infonce_blocks`
uses that for large batches and is itself compared with the loops.
"""

import math
from functools import lru_cache
from itertools import product

import torch
from torch import Tensor

__all__ = ["candidates", "gradients", "infonce", "infonce_blocks", "log_k", "loss", "supcon"]


# ---- kernels: log k(z, w) ----


def log_k(kernel, z: Tensor, w: Tensor) -> Tensor:
    """log k(z, w) of vectors (d,), or of broadcast blocks (..., d)."""
    name, d = type(kernel).__name__, z.shape[-1]
    if name == "Sum":
        weights = kernel.weights or (1.0,) * len(kernel.kernels)
        members = [
            log_k(k, z, w) + math.log(a) for k, a in zip(kernel.kernels, weights, strict=True)
        ]
        return torch.logsumexp(torch.stack(members), dim=0)
    if name == "Concat":
        h = d // 2
        first = log_k(kernel.first, z[..., :h], w[..., :h])
        second = log_k(kernel.second, z[..., h:], w[..., h:])
        return torch.logsumexp(torch.stack([first, second]), dim=0)
    tau = temperature(kernel.tau, d)
    if name == "Cosine":
        return (direction(z) * direction(w) / tau).sum(-1)
    if name == "Dot":
        return (z * w / tau).sum(-1)
    if name == "Gaussian":
        return -((z - w) ** 2 / (2 * tau)).sum(-1)
    if name == "Laplace":
        return -norm((z - w) / tau)
    if name == "Exponential":
        return -raised(norm((z - w) / tau ** (1 / kernel.gamma)), kernel.gamma)
    if name == "Lp":
        return -(raised((z - w).abs(), kernel.p) / tau).sum(-1)
    if name == "Cauchy":
        return -torch.log(1 + ((z - w) ** 2 / tau).sum(-1))
    if name == "StudentT":
        return -(kernel.nu + 1) / 2 * torch.log(1 + ((z - w) ** 2 / (kernel.nu * tau)).sum(-1))
    raise NotImplementedError(f"no transcription of {name}: add its formula here")


def temperature(tau, d: int) -> Tensor:
    """tau as one float64 number per dimension; a learnable one with its graph."""
    if hasattr(tau, "log_ratio"):
        start = torch.tensor(tau.init, dtype=torch.float64)
        return (tau.least + (start - tau.least) * tau.log_ratio.double().exp()).expand(d)
    return torch.tensor(tau, dtype=torch.float64).expand(d)


def norm(x: Tensor) -> Tensor:
    """|x|, with gradient 0 at 0."""
    square = (x * x).sum(-1)
    zero = square == 0
    return torch.where(zero, 1.0, square).sqrt().masked_fill(zero, 0.0)


def raised(r: Tensor, power: float) -> Tensor:
    """r^power for r >= 0, with gradient 0 at 0."""
    zero = r == 0
    return (torch.where(zero, 1.0, r) ** power).masked_fill(zero, 0.0)


def direction(z: Tensor) -> Tensor:
    """z / |z|; the zero vector has none: it stays zero, with gradient zero."""
    length = norm(z).unsqueeze(-1)
    zero = length == 0
    return (z / torch.where(zero, 1.0, length)).masked_fill(zero, 0.0)


# ---- InfoNCE ----


def candidates(negatives: str, i: int, n: int) -> list[int]:
    """Candidates of anchor i among rows [view one, view two]; the partner of i is i +- n."""
    view, sample = divmod(i, n)
    everyone = range(2 * n)
    if negatives == "AllButSelf":
        return [j for j in everyone if j != i]
    if negatives == "AllButPair":
        return [j for j in everyone if j % n != sample]
    if negatives == "OtherView":
        return [j for j in everyone if j // n != view]
    if negatives == "SameView":
        own = [j for j in everyone if j // n == view and j != i]
        return [*own, sample + n * (1 - view)]
    if negatives == "OnlyPositive":
        return [sample + n * (1 - view)]
    raise NotImplementedError(f"no list of candidates for {negatives}")


def infonce_terms(kernel, negatives: str, anchors: str, z1, z2, queue=None):
    """Mean log k of positives, and mean log-sum-exp over explicit lists of candidates."""
    n = len(z1)
    rows = [*z1, *z2]
    extra = [] if queue is None else [*queue]
    attract, repel = [], []
    for i in range(2 * n if anchors == "both" else n):
        partner = i + n if i < n else i - n
        others = torch.stack([rows[j] for j in candidates(negatives, i, n)] + extra)
        attract.append(log_k(kernel, rows[i], rows[partner]))
        repel.append(torch.logsumexp(log_k(kernel, rows[i], others), 0))
    return torch.stack(attract).mean(), torch.stack(repel).mean()


def infonce(kernel, negatives: str, anchors: str, z1, z2, queue=None) -> Tensor:
    """mean_i [ log sum_c k(z_i, c) - log k(z_i, z_i+) ]."""
    attract, repel = infonce_terms(kernel, negatives, anchors, z1, z2, queue)
    return repel - attract


@lru_cache(maxsize=8)
def is_candidate(negatives: str, n: int) -> Tensor:
    """The lists of candidates as a (2n, 2n) table."""
    table = torch.zeros(2 * n, 2 * n, dtype=torch.bool)
    for i in range(2 * n):
        table[i, candidates(negatives, i, n)] = True
    return table


def infonce_blocks(kernel, negatives: str, z1, z2, rows_at_once: int = 128):
    """The loss of `infonce` over both views, and its gradients, in float64 for large batches."""
    n = len(z1)
    z = torch.cat([z1, z2]).double().requires_grad_()
    partner = (torch.arange(2 * n) + n) % (2 * n)
    total = 0.0
    for start in range(0, 2 * n, rows_at_once):
        i = torch.arange(start, min(start + rows_at_once, 2 * n))
        kept = is_candidate(negatives, n)[i]
        if type(kernel).__name__ == "Cosine":  # the same sum of products, as a matrix product
            matrix = (direction(z[i]) / temperature(kernel.tau, z.shape[1])) @ direction(z).T
        else:
            matrix = log_k(kernel, z[i, None], z)
        repel = torch.logsumexp(matrix.masked_fill(~kept, -torch.inf), dim=1)
        part = (repel - log_k(kernel, z[i], z[partner[i]])).sum() / (2 * n)
        part.backward()
        total += float(part.detach())
    return total, z.grad[:n], z.grad[n:]


# ---- the others ----


def supcon(kernel, z1, z2, labels) -> Tensor:
    """L_out: the mean over positives stands outside the logarithm."""
    rows = [*z1] if z2 is None else [*z1, *z2]
    y = labels.tolist() * (1 if z2 is None else 2)
    losses = []
    for i, anchor in enumerate(rows):
        logs = {c: log_k(kernel, anchor, rows[c]) for c in range(len(rows)) if c != i}
        positives = [logs[p] for p in logs if y[p] == y[i]]
        repel = torch.logsumexp(torch.stack(list(logs.values())), 0)
        losses.append(repel - sum(positives) / len(positives))
    return sum(losses) / len(losses)


PSI = {
    "log1p": lambda t: torch.log(1 + t),
    "log": torch.log,
    "identity": lambda t: t,
    "sqrt": torch.sqrt,
}


def generalised(psi, eta, anchors: str, z1, z2) -> Tensor:
    """Def. 2.1: mean of Psi( mean_j eta(z_i, z'_j) / eta(z_i, z'_i) ), T and T' in both orders."""
    psi = PSI[psi] if isinstance(psi, str) else psi
    by_distance = not hasattr(eta, "parts")
    similarity = (
        (lambda x, y: eta(((x - y) ** 2).sum() / 2)) if by_distance
        else (lambda x, y: log_k(eta, x, y).exp())
    )  # fmt: skip
    values = []
    for x, y in [(z1, z2), (z2, z1)] if anchors == "both" else [(z1, z2)]:
        n = len(x)
        for i in range(n):
            mean = sum(similarity(x[i], y[j]) for j in range(n)) / n
            values.append(psi(mean / similarity(x[i], y[i])))
    return sum(values) / len(values)


def vicreg(z1, z2, invariance, variance, covariance, eps) -> Tensor:
    """Eqs. 1-6 of VICReg: s, v and c, with moments over n - 1."""
    n, d = z1.shape
    s = sum(((z1[i] - z2[i]) ** 2).sum() for i in range(n)) / n
    spread = 0.0
    for z in (z1, z2):
        mean = sum(z[i] for i in range(n)) / n
        cov = sum(torch.outer(z[i] - mean, z[i] - mean) for i in range(n)) / (n - 1)
        hinge = sum(torch.relu(1 - (cov[k, k] + eps).sqrt()) for k in range(d)) / d
        off = sum(cov[k, l] ** 2 for k, l in product(range(d), range(d)) if k != l) / d
        spread = spread + variance * hinge + covariance * off
    return invariance * s + spread


def byol(z1, z2, normalise: bool) -> Tensor:
    """Squared distance of prediction and target; the target is a constant."""
    total = 0.0
    for q, t in zip(z1, z2.detach(), strict=True):
        q, t = (direction(q), direction(t)) if normalise else (q, t)
        total = total + ((q - t) ** 2).sum()
    return total / len(z1)


def barlow_twins(z1, z2, redundancy: float) -> Tensor:
    """Eq. 1 of Barlow Twins: the cross-correlation of centred dimensions, entry by entry."""
    d = z1.shape[1]
    a, b = z1 - z1.mean(0), z2 - z2.mean(0)
    total = 0.0
    for k, l in product(range(d), range(d)):
        c = (direction(a[:, k]) * direction(b[:, l])).sum()
        total = total + ((1 - c) ** 2 if k == l else redundancy * c**2)
    return total


def spectral(z1, z2) -> Tensor:
    """-2 mean_i z1_i . z2_i + mean_{i != j} (z1_i . z2_j)^2."""
    n = len(z1)
    pairs = sum(z1[i] @ z2[i] for i in range(n)) / n
    others = [(z1[i] @ z2[j]) ** 2 for i, j in product(range(n), range(n)) if i != j]
    return -2 * pairs + sum(others) / len(others)


def align_uniform(z1, z2, align, uniform, alpha, t) -> Tensor:
    """Alignment of pairs, and log of the mean potential of distinct points of each view."""
    n = len(z1)
    u1, u2 = direction(z1), direction(z2)
    near = sum(raised(norm(u1[i] - u2[i]), alpha) for i in range(n)) / n
    spread = 0.0
    for u in (u1, u2):
        k = [(-t * ((u[i] - u[j]) ** 2).sum()).exp() for i in range(n) for j in range(n) if i != j]
        spread = spread + (sum(k) / len(k)).log() / 2
    return align * near + uniform * spread


def siglip(kernel, bias, z1, z2, groups=None) -> Tensor:
    """- mean_i sum_j log sigmoid(y_ij (log k_ij + bias)); pairs of one group are left out."""
    n, total = len(z1), 0.0
    for i, j in product(range(n), range(n)):
        logit = log_k(kernel, z1[i], z2[j]) + bias.double()
        if i == j:
            total = total + torch.log(1 + torch.exp(-logit))
        elif groups is None or int(groups[i]) != int(groups[j]):
            total = total + torch.log(1 + torch.exp(logit))
    return total / n


def grouped_infonce(kernel, negatives: str, anchors: str, z1, z2, groups, queue=None) -> Tensor:
    """InfoNCE whose candidates of the anchor's own group, but for its partner, are struck out."""
    n, y = len(z1), groups.tolist() * 2
    rows, extra = [*z1, *z2], [] if queue is None else [*queue]
    losses = []
    for i in range(2 * n if anchors == "both" else n):
        partner = (i + n) % (2 * n)
        chosen = [j for j in candidates(negatives, i, n) if j == partner or y[j] != y[i]]
        others = [log_k(kernel, rows[i], w) for w in [*(rows[j] for j in chosen), *extra]]
        repel = torch.logsumexp(torch.stack(others), 0)
        losses.append(repel - log_k(kernel, rows[i], rows[partner]))
    return sum(losses) / len(losses)


def debiased(kernel, prior, beta, anchors: str, z1, z2, queue=None) -> Tensor:
    """Chuang et al. (2020) with one positive; candidates weighted by k^beta, Robinson et al."""
    n, rows, losses = len(z1), [*z1, *z2], []
    floor = torch.exp(-1 / temperature(kernel.tau, 1)).squeeze()
    for i in range(2 * n if anchors == "both" else n):
        positive = log_k(kernel, rows[i], rows[(i + n) % (2 * n)]).exp()
        others = [rows[j] for j in candidates("AllButPair", i, n)]
        others += [] if queue is None else [*queue]
        k = torch.stack([log_k(kernel, rows[i], w).exp() for w in others])
        weights = k**beta / (k**beta).mean()
        g = ((weights * k).mean() - prior * positive) / (1 - prior)
        losses.append(-torch.log(positive / (positive + len(k) * torch.maximum(g, floor))))
    return sum(losses) / len(losses)


def simsiam(z1, z2) -> Tensor:
    """The negative cosine of predictions with projections that are constants."""
    pairs = zip(z1, z2.detach(), strict=True)
    return -sum((direction(p) * direction(z)).sum() for p, z in pairs) / len(z1)


def softmax(x: Tensor) -> Tensor:
    """exp(x_k) / sum_l exp(x_l) of a vector."""
    e = torch.exp(x - x.max().detach())
    return e / e.sum()


def sinkhorn(scores: Tensor, epsilon: float, iterations: int) -> Tensor:
    """The authors' loop: columns to 1/K, rows to 1/n, in turn; in the end times n."""
    n, k = scores.shape
    q = torch.exp((scores - scores.max()) / epsilon)
    q = q / q.sum()
    for _ in range(iterations):
        for j in range(k):
            q = q.clone()
            q[:, j] = q[:, j] / q[:, j].sum() / k
        for i in range(n):
            q = q.clone()
            q[i] = q[i] / q[i].sum() / n
    return q * n


def swapped(targets: Tensor, scores: Tensor, tau: float) -> Tensor:
    """Mean over rows of - sum_k targets_k log softmax(scores / tau)_k."""
    rows = zip(targets.detach(), scores, strict=True)
    return -sum((q * torch.log(softmax(s / tau))).sum() for q, s in rows) / len(scores)


def dino(z1, z2, o) -> Tensor:
    """Cross-entropy of the student with the teacher's centred or equally shared prototypes."""
    if o.centring == "sinkhorn":
        targets = sinkhorn(z2.detach(), o.target_tau, o.iterations)
    else:
        targets = torch.stack([softmax((t - o.centre) / o.target_tau) for t in z2.detach()])
    return swapped(targets, z1, o.tau)


def swav(z1, z2, o) -> Tensor:
    """Each view predicts the codes of the other, half and half."""
    q1, q2 = (sinkhorn(z.detach(), o.epsilon, o.iterations) for z in (z1, z2))
    return (swapped(q2, z1, o.tau) + swapped(q1, z2, o.tau)) / 2


def nnclr(kernel, z1, z2, queue) -> Tensor:
    """The nearest row of the queue takes the place of z2; it must single out z1."""
    losses = []
    for i, z in enumerate(z2.detach()):
        nearest = max(queue.detach(), key=lambda s, z=z: float(log_k(kernel, z, s).detach()))
        logs = torch.stack([log_k(kernel, nearest, p) for p in z1])
        losses.append(torch.logsumexp(logs, 0) - logs[i])
    return sum(losses) / len(losses)


def loss(objective, z1, z2, labels=None, queue=None) -> Tensor:
    """The transcription of an objective, by its name and its parameters."""
    o, name = objective, type(objective).__name__
    if name == "SigLIP":
        return siglip(o.kernel, o.bias, z1, z2)
    if name == "Debiased":
        return debiased(o.kernel, o.prior, o.beta, o.anchors, z1, z2, queue)
    if name == "SimSiam":
        return simsiam(z1, z2)
    if name == "DINO":
        return dino(z1, z2, o)
    if name == "SwAV":
        return swav(z1, z2, o)
    if name == "NNCLR":
        return nnclr(o.kernel, z1, z2, queue.double())
    if name == "Matryoshka":
        seen = lambda d: [None if x is None else x[:, :d] for x in (z1, z2, queue)]
        weights = o.weights or (1.0,) * len(o.dims)
        each = [
            w * loss(o.objective, *seen(d)[:2], labels, seen(d)[2])
            for w, d in zip(weights, o.dims, strict=True)
        ]
        return sum(each)
    if name == "Grouped":
        if type(o.objective).__name__ == "SigLIP":
            return siglip(o.objective.kernel, o.objective.bias, z1, z2, labels)
        inner = o.objective
        named = type(inner.negatives).__name__
        return grouped_infonce(inner.kernel, named, inner.anchors, z1, z2, labels, queue)
    if name == "InfoNCE":
        return infonce(o.kernel, type(o.negatives).__name__, o.anchors, z1, z2, queue)
    if name == "SupCon":
        return supcon(o.kernel, z1, z2, labels)
    if name == "Generalised":
        return generalised(o.psi, o.eta, o.anchors, z1, z2)
    if name == "VICReg":
        return vicreg(z1, z2, o.invariance, o.variance, o.covariance, o.eps)
    if name == "BYOL":
        return byol(z1, z2, o.normalise)
    if name == "BarlowTwins":
        return barlow_twins(z1, z2, o.redundancy)
    if name == "SpectralContrastive":
        return spectral(z1, z2)
    if name == "AlignUniform":
        return align_uniform(z1, z2, o.align, o.uniform, o.alpha, o.t)
    if name == "Weighted":
        return sum(w * loss(f, z1, z2, labels, queue) for w, f in o.members)
    if name == "OnDims":
        seen = [None if x is None else x[:, o.start : o.stop] for x in (z1, z2, queue)]
        return loss(o.objective, *seen[:2], labels, seen[2])
    raise NotImplementedError(f"no transcription of {name}: add its formula here")


def gradients(value: Tensor, *inputs: Tensor) -> list[Tensor]:
    """Gradients, zero where the value does not depend on an input."""
    found = torch.autograd.grad(value, inputs, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]
