"""Draw the figures of the guide."""

from __future__ import annotations

import io

import numpy as np


def pages() -> dict[str, bytes]:
    """Return each figure by its path."""
    return {"guide/diagnosis.png": _diagnosis()}


def _diagnosis() -> bytes:
    """Draw spectrum, cosines and alignment of a healthy and two collapsed embeddings."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    draw = np.random.default_rng(0)
    n, d = 800, 64
    healthy = draw.normal(size=(n, d)) * np.linspace(1.0, 0.35, d)
    thin = healthy * np.where(np.arange(d) < 8, 1.0, 1e-4)
    full = np.ones(d) + 0.02 * healthy
    kinds = {"healthy": healthy, "dimensional collapse": thin, "full collapse": full}
    noise = 0.25 * draw.normal(size=(n, d)) * np.linspace(1.0, 0.35, d)
    fig, axes = plt.subplots(
        1, 3, figsize=(11, 3.3), layout="constrained", gridspec_kw={"width_ratios": (1, 1, 1.2)}
    )
    for (name, h), colour in zip(kinds.items(), ("#1b7f5c", "#d97706", "#b91c1c"), strict=True):
        s = np.linalg.svd(h - h.mean(0), compute_uv=False) / np.sqrt(n)
        axes[0].semilogy(np.arange(1, d + 1), s, color=colour)
        at = 12 if name.startswith("dim") else 24
        axes[0].annotate(
            name,
            (at, s[at - 1]),
            textcoords="offset points",
            xytext=(0, 6),
            color=colour,
            fontsize=9,
        )
        u = h / np.linalg.norm(h, axis=1, keepdims=True)
        cosine = (u @ u.T)[np.triu_indices(n, 1)]
        axes[1].hist(
            cosine, bins=np.linspace(-1, 1.001, 120), density=True, color=colour, alpha=0.6
        )
        scale = 0.02 if name == "full collapse" else 1.0
        other = h + scale * noise * (np.arange(d) < 8 if name.startswith("dim") else 1.0)
        v = other / np.linalg.norm(other, axis=1, keepdims=True)
        alignment = ((u - v) ** 2).sum(1).mean()
        uniformity = np.log(np.exp(-2 * (2 - 2 * cosine)).mean())
        axes[2].scatter(alignment, uniformity, color=colour, s=60)
        axes[2].annotate(
            name, (alignment, uniformity), textcoords="offset points", xytext=(8, -3), fontsize=9
        )
    axes[0].set(xlabel="index $k$", ylabel="singular value $s_k$", title="spectrum")
    axes[1].set(xlabel="cosine of distinct samples", ylabel="density", title="cone", ylim=(0, 12))
    axes[2].set(
        xlabel="alignment (0 is best)", ylabel="uniformity (lower is better)", title="the two goals"
    )
    axes[2].set_xlim(-0.02, 0.14)
    file = io.BytesIO()
    fig.savefig(file, format="png", dpi=130)
    plt.close(fig)
    return file.getvalue()
