"""The encoder against the projector: what the projector reads, and what it throws away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chiaroscuro.diagnostics.rows import labels_of, pairs_of, rows_of, some_of
from chiaroscuro.diagnostics.semantics.factors import survival
from chiaroscuro.errors import need, number
from chiaroscuro.measures.record import Record
from chiaroscuro.measures.spectrum import singular_values
from chiaroscuro.numerics import unit

__all__ = [
    "Augmentations",
    "Displacements",
    "augmentations",
    "discarded",
    "displacements",
    "subspace_angles",
    "unexplained",
]

ROWS = 4096
CHUNK = 1024
ROUNDING = 1e-6
"""Singular values of weights below this share of the largest are rounding of float32."""


def unexplained(W: Any, v: Any, threshold: float = ROUNDING) -> float:
    """Return the share of vectors v outside the row space of a linear projector.

        sum_i min_t |v_i - W' t|^2 / sum_i |v_i|^2      [cosentino2022, eq. 10]

    with z = W h, so that the rows of W span what is read (the paper has the transpose, z = W' h).
    From 0, where all v_i lie in that span, to 1, where all are in the kernel of W and the projector
    does not see them; about 1 - rank / d for directions that have nothing to do with W.

    Relations: of delta-h (`displacements`) it is the paper's eq. (10); of h2 - h1 it is the share
    of the augmentation that the projector annihilates (`augmentations`).

    Args:
        W: (d_proj, d_enc), as `torch.nn.Linear.weight`.
        v: (n, d_enc).
        threshold: singular values of W below this share of the largest count as 0; 1e-6, rounding
            of float32. 1e-3 is the one of `numerical_rank`, for a W that has nearly collapsed.

    References:
        cosentino2022

    Example:
        >>> unexplained([[1.0, 0.0, 0.0]], [[3.0, 0.0, 4.0]])  # 16 / 25
        0.64
    """
    Q, x = _span("unexplained(W, v)", W, v, threshold)
    return _outside(Q, x)


def _outside(Q: Tensor, x: Tensor) -> float:
    total = float(x.square().sum())
    left = x - (x @ Q) @ Q.T
    return float(left.square().sum()) / total if total else 0.0


def _span(call: str, W: Any, v: Any, threshold: float) -> tuple[Tensor, Tensor]:
    """An orthonormal basis (d, r) of the rows of W, and the vectors."""
    w, x = rows_of(call, W, 1), rows_of(call, v, 1)
    need(
        w.shape[1] == x.shape[1],
        lambda: (
            f"`{call}` needs weights (d_proj, d_enc) and vectors (n, d_enc); received "
            f"{tuple(w.shape)} and {tuple(x.shape)}."
        ),
    )
    return _basis(w, number(call, "threshold", threshold)), x


def _basis(w: Tensor, threshold: float) -> Tensor:
    _, s, V = torch.linalg.svd(w, full_matrices=False)
    return V[(s > threshold * s[0]) & (s > 0)].T


def subspace_angles(A: Any, B: Any, threshold: float = ROUNDING) -> np.ndarray:
    """Return the principal angles between the row spans of A and B, in radians, increasing.

        cos angle_k = k-th singular value of Q_A' Q_B

    min(rank A, rank B) of them, from 0 (a shared direction) to pi/2 (no part in common).

    Relations: it is `scipy.linalg.subspace_angles` of the transposes, in rising order.

    Args:
        A, B: (p, d) and (q, d).
        threshold: as for `unexplained`.

    Numerics: small angles by their sines, as in [bjorck1973angles], so that 1e-8 is not 0.

    References:
        bjorck1973angles

    Example:
        >>> subspace_angles([[1.0, 0.0, 0.0]], [[1.0, 1.0, 0.0]]).round(6).tolist()  # pi / 4
        [0.785398]
    """
    call = "subspace_angles(A, B)"
    Q, b = _span(call, A, B, threshold)
    P = _basis(b, threshold)
    if Q.shape[1] < P.shape[1]:
        Q, P = P, Q
    if not P.shape[1]:
        return np.zeros(0)
    cosines = torch.linalg.svdvals(Q.T @ P).clamp(max=1)
    sines = torch.linalg.svdvals(P - Q @ (Q.T @ P)).flip(0).clamp(max=1)
    return torch.where(cosines.square() < 0.5, cosines.acos(), sines.asin()).numpy()


@dataclass(frozen=True, eq=False)
class Displacements(Record):
    """delta-h (m, d), the samples `rows` (m,) they start from and `hardest` (m,) they lead to.

    `distance` (m,) is how far h1 is from that hardest negative, |h1 / |h1| - h~ / |h~||, in [0, 2].
    """

    delta: np.ndarray
    rows: np.ndarray
    hardest: np.ndarray
    distance: np.ndarray
    n: int

    def agreement(self, labels: Any) -> float:
        """The share of samples whose hardest negative has their label [cosentino2022, Fig. 6].

        Args:
            labels: (n,), fine or coarse, of all samples that the displacements were drawn from.
        """
        y = labels_of("Displacements.agreement", labels, self.n).numpy()
        return float((y[self.rows] == y[self.hardest]).mean())


def displacements(
    h1: Any, h2: Any, z1: Any, z2: Any, rows: int | None = ROWS, seed: int = 0
) -> Displacements:
    """Return the vectors in h from the hardest negative to the positive [cosentino2022, eq. 8].

        delta-h_i = h2_i - h~_i,   h~_i = the h of argmax_{l not i} cos(z1_i, z~_l)

    over both views of all other samples; the hardest is found where the projector sees it, in z.
    The paper takes them for noisy directions of the data manifold, which the projector should span:
    `unexplained(W, delta)`. Its Fig. 5 draws a "normalized Euclidean distance" of h1 and h~ and
    does not say how it is normalised: `distance` is that of the unit vectors.

    Args:
        h1, h2: two views in the encoder's space, (n, d_enc).
        z1, z2: the same in the projector's, (n, d_proj).
        rows: so many samples at most, drawn by the seed; the hardest is the hardest among them.

    References:
        cosentino2022

    Example:
        >>> h = torch.tensor([[1.0, 0.0], [1.0, 0.5], [0.0, 1.0]])
        >>> displacements(h, h, h, h).hardest.tolist()
        [1, 0, 1]
    """
    call = "displacements(h1, h2, z1, z2)"
    a1, a2 = pairs_of(call, h1, h2)
    b1, b2 = pairs_of(call, z1, z2)
    need(
        len(a1) == len(b1),
        lambda: f"`{call}` needs as many rows of h as of z; received {len(a1)} and {len(b1)}.",
    )
    kept = some_of(call, len(a1), rows, seed)
    n = len(kept)
    h, u = torch.cat([a1[kept], a2[kept]]), unit(torch.cat([b1[kept], b2[kept]]))
    hardest = []
    for start in range(0, n, CHUNK):
        s = u[start : min(start + CHUNK, n)] @ u.T
        i = torch.arange(len(s))
        s[i, start + i] = s[i, n + start + i] = -torch.inf
        hardest.append(s.argmax(dim=1))
    at = torch.cat(hardest)
    delta = h[n:] - h[at]
    distance = (unit(h[:n]) - unit(h[at])).norm(dim=1)
    return Displacements(
        delta.numpy(), kept.numpy(), kept[at % n].numpy(), distance.numpy(), len(a1)
    )


@dataclass(frozen=True, eq=False)
class Augmentations(Record):
    """Directions v = h2 - h1 against the kernel of W.

    `annihilated` is the share of v outside what W reads, `data` that of the centred h, `chance`
    1 - rank / d. `gain` is how much W keeps of v relative to what it keeps of the data, in squared
    length; `cosine` the mean cosine of W h1 and W h2, `cosine_h` that of h1 and h2; `off_ray` the
    share of W h2 that no factor c >= 0 brings W h1 to, which is what invariance needs; `rank` and
    `span` are the numerical ranks of W and of v, `effective_span` the effective rank of v; `angles`
    those between the rows of W and as many leading directions of v as W has rank; `n` the pairs
    used.
    """

    annihilated: float
    data: float
    chance: float
    gain: float
    cosine: float
    cosine_h: float
    off_ray: float
    rank: int
    span: int
    effective_span: float
    angles: np.ndarray
    n: int
    d: int


def augmentations(
    W: Any, h1: Any, h2: Any, threshold: float = 1e-3, rows: int | None = ROWS, seed: int = 0
) -> Augmentations:
    """Measure whether augmentations move h within the projector's kernel [cosentino2022, Sec. 4].

        v_i = h2_i - h1_i;   annihilated = |v - Q Q' v|^2 / |v|^2,   Q a basis of the rows of W

    Props. 4.1 and 4.3 say that invariance holds if and only if v is in the kernel. "If" is right;
    "only if" is not: W h2 = c W h1 with c > 0 is enough and needed,

        off_ray = sum_i min_{c >= 0} |W h2_i - c W h1_i|^2 / sum_i |W h2_i|^2

    and so it stands beside it, with `cosine`, 1 exactly where it is 0. By rank and nullity W can
    annihilate all v only if rank <= d - span: `predicted_rank`.

    annihilated is in [0, 1]; read it against `data` and `chance`: a projector that has learnt the
    augmentations annihilates more of v than of the data. gain is 0 for full annihilation, 1 where
    W treats v as it treats the data.

    Args:
        W: (d_proj, d_enc), as `torch.nn.Linear.weight`.
        h1, h2: two views in the encoder's space, (n, d_enc).
        threshold: below this share of the largest singular value, a direction of W counts as
            kernel; 1e-3, as `numerical_rank`.
        rows: so many pairs at most, drawn by the seed.

    References:
        cosentino2022

    Example:
        >>> h = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 3.0]])
        >>> effect = augmentations([[1.0, 0.0]], h, h + torch.tensor([0.0, 1.0]))
        >>> effect.annihilated, effect.gain, round(effect.cosine, 6)
        (1.0, 0.0, 0.666667)
    """
    call = "augmentations(W, h1, h2)"
    x1, x2 = pairs_of(call, h1, h2)
    kept = some_of(call, len(x1), rows, seed)
    x1, x2 = x1[kept], x2[kept]
    Q, v = _span(call, W, x2 - x1, threshold)
    w = rows_of(call, W, 1)
    both = torch.cat([x1, x2])
    centred = both - both.mean(dim=0)
    n, d = x1.shape
    passed = lambda x: float((x @ w.T).square().sum()) / max(float(x.square().sum()), 1e-300)
    cosine = lambda a, b: float((unit(a) * unit(b)).sum(dim=1).mean())
    of_data = passed(centred)
    moving = bool((v != 0).any())
    # v and -v span the same: no mean is taken off
    s = torch.from_numpy(singular_values(v, centred=False))
    return Augmentations(
        annihilated=_outside(Q, v),
        data=_outside(Q, centred),
        chance=1 - Q.shape[1] / d,
        gain=passed(v) / of_data if of_data and moving else 0.0,
        cosine=cosine(x1 @ w.T, x2 @ w.T),
        cosine_h=cosine(x1, x2),
        off_ray=_off_ray(x1 @ w.T, x2 @ w.T),
        rank=Q.shape[1],
        span=int((s > 1e-3 * s[0]).sum()) if moving else 0,
        effective_span=float(torch.special.entr(s / s.sum()).sum().exp()) if moving else 0.0,
        angles=_leading_angles(Q, v) if moving and Q.shape[1] else np.zeros(0),
        n=n,
        d=d,
    )


def _off_ray(a: Tensor, b: Tensor) -> float:
    c = (a * b).sum(dim=1) / a.square().sum(dim=1).clamp(min=1e-300)
    total = float(b.square().sum())
    return float((b - c.clamp(min=0)[:, None] * a).square().sum()) / total if total else 0.0


def _leading_angles(Q: Tensor, v: Tensor) -> np.ndarray:
    leading = torch.linalg.eigh(v.T @ v).eigenvectors[:, -Q.shape[1] :]
    return subspace_angles(Q.T, leading.T)


def discarded(
    h: Any, z: Any, factors: Mapping[str, Any], kinds: Mapping[str, str] | None = None
) -> dict[str, dict[str, float]]:
    """Compare the readout of each factor before and after the projector.

        lost = above_chance in h - above_chance in z

    by factor, with `before`, `after` and `lost`. lost is at most 1 (all of it); below 0 where the
    projector makes a factor easier to read; 0 for the identity and for an invertible linear map.

    Relations: `survival({"h": h, "z": z}, factors)` has the scores.

    Args:
        h, z: (n, d_enc) and (n, d_proj), of the same samples.
        factors: (n,) by name, {"labels": labels} among them.
        kinds: as for `survival`.

    References:
        cosentino2022, rusak2022

    Example:
        >>> h = np.random.default_rng(0).normal(size=(500, 2))
        >>> lost = discarded(h, h[:, :1], {"hue": h[:, 1], "size": h[:, 0]})
        >>> round(lost["hue"]["lost"], 1), abs(round(lost["size"]["lost"], 1))
        (1.0, 0.0)
    """
    readable = survival({"h": h, "z": z}, factors, kinds)
    return {
        name: {"before": float(a), "after": float(b), "lost": float(a - b)}
        for name, a, b in zip(readable.factors, *readable.above_chance, strict=True)
    }
