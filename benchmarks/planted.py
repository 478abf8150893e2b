"""Healthy embeddings, and pathologies planted into them: the cases of `advice.py`.

Three sources: features of a supervised ResNet-20 on CIFAR-10 test pictures, sentence embeddings of
MiniLM (both third-party), and small networks trained here on handwritten digits as arrays. A case
is a function of (name, seed): even seeds plant into the supervised features, odd ones into a small
network trained here, and seeds from 5 on plant more mildly.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import chiaroscuro as cs
from chiaroscuro.diagnostics import About

HERE = Path(__file__).resolve().parent
KEPT = HERE / "out" / "advice"
ROWS = 800
Arrays = dict[str, Any]


class Case(NamedTuple):
    """What a diagnosis is given."""

    arrays: Arrays
    about: About


# ---- sources ----


@functools.cache
def _resnet() -> tuple[np.ndarray, np.ndarray]:
    folder = os.environ.get("CHIARO_DATA", "")
    found = np.load(Path(folder) / "cifar10_test_resnet20_embeddings.npz")
    return found["embeddings"].astype(np.float64), found["labels"].astype(np.int64)


def resnet(seed: int) -> Arrays:
    """800 of 10,000 supervised features, with a linear projection and noise as views."""
    h, y = _resnet()
    draw = np.random.default_rng(seed)
    rows = draw.choice(len(h), ROWS, replace=False)
    h, y = h[rows], y[rows]
    W = draw.normal(size=(64, 32)) / 8
    blur = 0.5 * h.std(axis=0)
    h1, h2 = (h + blur * draw.normal(size=h.shape) for _ in range(2))
    return {"h": h, "z": h @ W, "labels": y, "h1": h1, "h2": h2, "z1": h1 @ W, "z2": h2 @ W}


def digit_arrays(path: Path) -> Path:
    """Handwritten digits as standardised arrays of 64 numbers, with what made them as factors."""
    if not path.exists():
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        pictures = x.reshape(-1, 8, 8)
        ink = pictures.sum(axis=(1, 2))
        at = np.arange(8) - 3.5
        across, down = pictures.sum(axis=1) @ at / ink, pictures.sum(axis=2) @ at / ink
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(
            path,
            x=((x - x.mean()) / x.std()).astype(np.float32),
            labels=y,
            factors=np.stack([ink, across, down], axis=1),
            factor_names=np.array(["ink", "across", "down"]),
            split=(np.random.default_rng(0).random(len(y)) < 0.3).astype(np.int64),
        )
    return path


SMALL: dict[str, Any] = {
    "objective": "InfoNCE(kernel=Cosine(tau=0.2))",
    "epochs": 15,
    "batch": 128,
    "views": {"first": "Jitter(noise=0.5)"},
    "network": {
        "encoder": "MLP(d_in=64, d=64, depth=2, width=128)",
        "projector": "Projector(d=32, depth=2)",
    },
    "optimiser": {"name": "adamw", "lr": 2e-3, "weight_decay": 1e-4},
    "schedule": {"warmup": 1.0},
}


def small(**changes: Any) -> dict[str, Any]:
    """The settings of the small network, with other values for some."""
    return {**SMALL, "data": {"source": str(digit_arrays(KEPT / "digits.npz"))}, **changes}


def trained(seed: int) -> Case:
    """A small network trained on arrays of digits; kept on disk once trained.

    Seeds 0 to 9 share five networks, later ones have their own three.
    """
    seed = seed % 5 if seed < 10 else 5 + seed % 3
    folder = KEPT / "runs" / f"digits-{seed}"
    if not (folder / "done").exists():
        cs.train(small(seed=seed), folder)
        (folder / "done").touch()
    return examined(folder)


@functools.lru_cache(maxsize=2)
def examined(folder: Path) -> Case:
    """What the diagnosis of a run sees."""
    from chiaroscuro import engine

    run = cs.Run.open(folder)
    settings = engine.Settings.of(run.settings())
    found = engine.examine(run, ROWS).embeddings.arrays()
    arrays = {name: value for name, value in found.items() if not name.startswith("layer_")}
    arrays["layers"] = {"untrained": found["layer_untrained"]}
    about = About(
        engine.open_run(run).contrast,
        settings.batch,
        0,
        settings.table(),
        run.history().records,
    )
    return Case(arrays, about)


def sentences(seed: int) -> Arrays:
    """600 sentence embeddings of MiniLM, of the seed's part of the texts."""
    from sentences import embedded

    h = embedded(KEPT / "sentences.npz")
    return {"h": h[np.random.default_rng(seed).choice(len(h), 600, replace=False)]}


def either(seed: int) -> Arrays:
    """Supervised features for even seeds, the small trained network for odd ones."""
    return resnet(seed) if seed % 2 == 0 else dict(trained(seed).arrays)


# ---- pathologies ----

Pathology = Callable[[int, Arrays, np.random.Generator], Case]
PATHOLOGIES: dict[str, tuple[tuple[str, ...], Pathology]] = {}


def planted(*given: str) -> Callable[[Pathology], Pathology]:
    """Note a pathology under its name, with the names of what the diagnosis is given."""

    def note(make: Pathology) -> Pathology:
        PATHOLOGIES[make.__name__] = (given, make)
        return make

    return note


def pick(seed: int, strong: tuple[Any, ...], mild: tuple[Any, ...]) -> Any:
    """How strong a pathology is at a seed."""
    return strong[seed % 5] if seed < 5 else mild[seed % 5]


def only(arrays: Arrays, *names: str) -> Arrays:
    return {name: arrays[name] for name in names if name in arrays}


def case(name: str, seed: int) -> Case:
    """The planted case of that name and seed."""
    draw = np.random.default_rng(1000 + seed)
    return PATHOLOGIES[name][1](seed, either(seed), draw)


@planted("h")
def full_collapse(seed: int, a: Arrays, draw: np.random.Generator) -> Case:
    h = a["h"] - a["h"].mean(axis=0)
    to = draw.normal(size=h.shape[1])
    size = np.linalg.norm(h, axis=1).mean() / np.linalg.norm(to)
    return Case(
        {
            "h": size * to
            + h * pick(seed, (0.02, 0.1, 0.02, 0.1, 0.02), (0.12, 0.13, 0.11, 0.12, 0.13))
        },
        About(),
    )


@planted("h", "labels")
def dimensional_collapse(seed: int, a: Arrays, draw: np.random.Generator) -> Case:
    h = a["h"]
    U, s, V = np.linalg.svd(h - h.mean(axis=0), full_matrices=False)
    k = pick(seed, (4, 10, 7, 14, 20), (24, 28, 32, 26, 30))
    left = pick(seed, (1e-4,) * 5, (3e-3,) * 5)
    Q = np.linalg.qr(draw.normal(size=(len(V), len(V))))[0]
    thin = (U[:, :k] * s[:k]) @ V[:k] @ Q + left * h.std() * draw.normal(size=h.shape)
    return Case({"h": thin, "labels": a["labels"]}, About())


@planted("h", "labels", "factors", "layer_untrained")
def suppressed_style(seed: int, a: Arrays, draw: np.random.Generator) -> Case:
    made = trained(seed)
    a = dict(made.arrays)
    style = a["factors"][:, [seed % 3]]
    X = np.c_[np.ones(len(style)), style, style**2, style**3]
    h = a["h"].astype(np.float64)
    a["h"] = h - X @ np.linalg.lstsq(X, h, rcond=None)[0]
    Y = style - style.mean()  # and what a readout would still put together
    for _ in range(3):
        w = np.linalg.lstsq(a["h"] - a["h"].mean(axis=0), Y, rcond=None)[0]
        w /= np.linalg.norm(w)
        a["h"] = a["h"] - (a["h"] @ w) @ w.T
    return Case(only(a, "h", "labels", "factors", "factor_names", "layers"), About())


def _about(loss: Any = None, batch: int | None = None) -> About:
    return About(loss or cs.InfoNCE(cs.Cosine(tau=0.2)), batch)


@planted("z1, z2", "objective")
def high_temperature(seed: int, a: Arrays, draw: np.random.Generator) -> Case:
    tau = pick(seed, (5.0, 10.0, 8.0, 20.0, 50.0), (3.0, 2.0, 3.0, 2.0, 2.5))
    return Case(only(a, "z1", "z2"), _about(cs.InfoNCE(cs.Cosine(tau=tau))))


@planted("z1, z2", "objective")
def low_temperature(seed: int, a: Arrays, draw: np.random.Generator) -> Case:
    tau = pick(seed, (0.01, 0.01, 0.005, 0.005, 0.002), (0.015, 0.01, 0.015, 0.01, 0.015))
    return Case(only(a, "z1", "z2"), _about(cs.InfoNCE(cs.Cosine(tau=tau))))


@planted("z1, z2", "labels")
def false_negatives(seed: int, a: Arrays, draw: np.random.Generator) -> Case:
    few = np.isin(
        a["labels"], draw.choice(10, pick(seed, (2, 3, 2, 3, 2), (3,) * 5), replace=False)
    )
    return Case({name: a[name][few] for name in ("z1", "z2", "labels")}, About())


@planted("z1, z2")
def mispaired_views(seed: int, a: Arrays, draw: np.random.Generator) -> Case:
    order = draw.permutation(len(a["z1"])) if seed % 2 else np.roll(np.arange(len(a["z1"])), 1)
    return Case({"z1": a["z1"], "z2": a["z2"][order]}, About())


@planted("h1, h2")
def weak_views(seed: int, a: Arrays, draw: np.random.Generator) -> Case:
    h = a["h1"]
    little = pick(seed, (0.01, 0.02, 0.03, 0.005, 0.0), (0.05, 0.06, 0.07, 0.05, 0.06))
    return Case({"h1": h, "h2": h + little * h.std(axis=0) * draw.normal(size=h.shape)}, About())


@planted("z1, z2")
def strong_views(seed: int, a: Arrays, draw: np.random.Generator) -> Case:
    z1, z2 = (a[name] - a[name].mean(axis=0) for name in ("z1", "z2"))
    keep = pick(seed, (0.3, 0.35, 0.33, 0.38, 0.28), (0.4, 0.42, 0.38, 0.4, 0.36))
    mixed = [keep * z + (1 - keep) * z[draw.permutation(len(z))] for z in (z1, z2)]
    return Case({"z1": mixed[0], "z2": mixed[1]}, About())


@planted("h")
def dead_dimensions(seed: int, a: Arrays, draw: np.random.Generator) -> Case:
    h = a["h"].copy()
    share = pick(seed, (0.15, 0.2, 0.3, 0.5, 0.25), (0.11, 0.12, 0.13, 0.11, 0.12))
    h[:, draw.choice(h.shape[1], int(share * h.shape[1]), replace=False)] = seed % 2
    return Case({"h": h}, About())


@planted("h")
def duplicated_samples(seed: int, a: Arrays, draw: np.random.Generator) -> Case:
    h = a["h"].copy()
    n, share = len(h), pick(seed, (0.05, 0.1, 0.2, 0.03, 0.5), (0.025, 0.03, 0.035, 0.04, 0.03))
    to, of = np.split(draw.permutation(n)[: 2 * int(share * n / 2)], 2)
    h[to] = h[of] + 1e-3 * (seed % 2) * h.std() * draw.normal(size=h[of].shape)
    return Case({"h": h}, About())


@planted("h")
def exploding_norms(seed: int, a: Arrays, draw: np.random.Generator) -> Case:
    h = a["h"].copy()
    far = draw.choice(len(h), pick(seed, (4, 8, 16, 24, 8), (1, 2, 3, 1, 2)), replace=False)
    h[far] *= pick(seed, (50.0, 200.0, 1e3, 1e4, 80.0), (25.0, 30.0, 28.0, 35.0, 30.0))
    return Case({"h": h}, About())


@planted("h")
def hubs(seed: int, a: Arrays, draw: np.random.Generator) -> Case:
    h = a["h"] / np.linalg.norm(a["h"], axis=1, keepdims=True)
    h = h + h.mean(axis=0)
    noise = draw.normal(size=(len(h), 128)) / np.sqrt(128) * np.linalg.norm(h, axis=1).mean()
    h = np.c_[h, noise]
    few = draw.choice(len(h), pick(seed, (3, 5, 8, 4, 2), (2, 3, 12, 4, 20)), replace=False)
    h[few] = h.mean(axis=0) + pick(seed, (0.05,) * 5, (0.5, 0.6, 0.5, 0.6, 0.5)) * h.std(
        axis=0
    ) * draw.normal(size=(len(few), h.shape[1]))
    return Case({"h": h}, About())


@planted("h", "labels")
def leaked_label(seed: int, a: Arrays, draw: np.random.Generator) -> Case:
    h, y = a["h"].copy(), a["labels"]
    code = y / 10 if seed % 2 else draw.permutation(10)[y] * 1.0
    noise = pick(seed, (0.01,) * 5, (0.03, 0.04, 0.03, 0.02, 0.04)) * code.std()
    h[:, seed] = code * h.std() + noise * h.std() * draw.normal(size=len(y))
    return Case({"h": h, "labels": y}, About())


@planted("h", "z", "labels")
def projector_for_encoder(seed: int, a: Arrays, draw: np.random.Generator) -> Case:
    h, d = a["h"], pick(seed, (4, 6, 5, 8, 3), (8, 8, 9, 7, 8))
    z = h @ draw.normal(size=(h.shape[1], d)) / 8
    z = z + 0.3 * z.std(axis=0) * draw.normal(size=z.shape)
    return Case({"h": z, "z": h, "labels": a["labels"]}, About())


@planted("z1, z2", "objective", "batch")
def few_negatives(seed: int, a: Arrays, draw: np.random.Generator) -> Case:
    return Case(
        only(a, "z1", "z2"), _about(batch=pick(seed, (4, 8, 2, 12, 16), (16, 12, 16, 14, 10)))
    )


@planted("h", "labels")
def imbalanced_classes(seed: int, a: Arrays, draw: np.random.Generator) -> Case:
    shrink = pick(seed, (0.4, 0.5, 0.55, 0.45, 0.35), (0.6, 0.58, 0.55, 0.6, 0.57))
    keep = shrink ** draw.permutation(10)[a["labels"]] > draw.random(len(a["labels"]))
    return Case({"h": a["h"][keep], "labels": a["labels"][keep]}, About())


@planted("h", "labels", "layer_untrained")
def untrained_model(seed: int, a: Arrays, draw: np.random.Generator) -> Case:
    a = dict(trained(seed).arrays)
    before = a["layers"]["untrained"]
    little = pick(seed, (0.0, 0.05, 0.0, 0.05, 0.0), (0.1, 0.1, 0.1, 0.1, 0.1))
    a["h"] = before + little * before.std(axis=0) * draw.normal(size=before.shape)
    return Case(only(a, "h", "labels", "layers"), About())


@planted("h", "objective", "batch", "history")
def stuck_at_the_start(seed: int, a: Arrays, draw: np.random.Generator) -> Case:
    made = trained(seed)
    level = np.log(2 * 128 - 1) * pick(seed, (1.0,) * 5, (1.01, 0.99, 0.985, 1.01, 0.99))
    losses = level * (1 + 0.004 * draw.normal(size=60))
    history = [{"step": 10 * k, "loss": float(loss)} for k, loss in enumerate(losses)]
    before = made.arrays["layers"]["untrained"]
    narrow = before + (4.0, 1.0)[seed % 2] * before.mean(axis=0)
    about = About(made.about.loss, 128, 0, made.about.settings, history)
    return Case({"h": narrow}, about)


# ---- the healthy ----


def healthy(name: str) -> Case:
    """A healthy case by its name, such as `digits-views-3`."""
    source, given, seed = name.split("-")
    if source == "digits":
        made = trained(int(seed))
        if given == "all":
            return made
        keys = {
            "h": ("h",),
            "labels": ("h", "z", "labels", "split"),
            "views": ("z1", "z2", "h1", "h2", "labels"),
        }[given]
        about = made.about if given == "views" else About()
        return Case(only(made.arrays, *keys), about)
    if source == "sentences":
        return Case(sentences(int(seed)), About())
    a = resnet(100 + int(seed))
    if given in ("shifted", "relu", "stretched"):
        return Case({"h": _other(a["h"], given), "labels": a["labels"]}, About())
    keys = {"h": ("h",), "labels": ("h", "labels"), "views": ("z1", "z2", "labels")}[given]
    about = _about(batch=256) if given == "views" else About()
    return Case(only(a, *keys), about)


def _other(h: np.ndarray, how: str) -> np.ndarray:
    """The same features far from 0, as after a relu, or with a steeper spectrum."""
    if how == "shifted":
        return h + 2 * h.mean(axis=0)
    if how == "relu":
        return np.maximum(h - np.median(h, axis=0), 0)
    _, s, V = np.linalg.svd(h - h.mean(axis=0), full_matrices=False)
    return (h - h.mean(axis=0)) @ V.T / np.sqrt(np.arange(1, len(s) + 1)) @ V


FRESH = (
    *(f"digits-{given}-{s}" for given in ("h", "labels", "views", "all") for s in (12, 13)),
    *(
        f"resnet-{given}-{s}"
        for given in ("h", "labels", "views", "shifted", "relu", "stretched")
        for s in (12, 13)
    ),
    *(f"sentences-h-{seed}" for seed in (12, 13)),
)
"""Healthy cases that were made after the rules were frozen."""

HEALTHY = (
    *(f"digits-{given}-{seed}" for given in ("h", "labels", "views", "all") for seed in range(5)),
    *(f"resnet-{given}-{seed}" for given in ("h", "labels", "views") for seed in range(4)),
    *(f"sentences-h-{seed}" for seed in range(8)),
    *(f"resnet-{how}-{s}" for how in ("shifted", "relu", "stretched") for s in range(4)),
)
