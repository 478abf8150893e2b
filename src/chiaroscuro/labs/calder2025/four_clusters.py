"""Figs 5, 6: four clusters, trained through a network and without one.

Paper: calder2025, Fig. 5 (2-D, one hidden layer), App. B and Fig. 6 (four layers, 2-D and 3-D),
end of Secs 3 and 4. Four clusters at -3, -1, 1, 3 on the first axis; views disturb the last
coordinate.

The table: (network, vanilla) x (the network's own latents, random latents), one loss, several
seeds. An untrained network already shows the clusters in part, so what is judged is the gain over
the start, by silhouette and by the adjusted Rand index (ARI) of 4-means, both on the sphere.

What came out. Through a network clusters tighten within 15 to 200 steps; free embeddings gain
nothing, or lose. The paper says that vanilla descent forgets the data: from random latents there is
nothing to forget, and from the network's latents it keeps part of what is there (erratum). With the
bias-free ReLU network of Sec. 4.2.1 centres -3 and -1 are on one ray for ever (erratum): tanh units
with a bias are used.
Two claims fail by their rules. Four layers: some untrained networks start at a silhouette above
0.8, and what training adds there is below the 0.1 asked of every seed; where the start is lower it
adds up to 0.6. Recovery: see below. Fading holds, but slowly: from its peak the silhouette falls by
0.11 to 0.15 in 5000 steps, and the clusters are still there.

The end of Sec. 3 says that training recovers clusters even from an invariant map onto the uniform
law. We do not find it, from random or from ordered latents on the circle, and could not: the
uniform law is the minimiser of the loss among invariant maps (V4), the clustered embeddings that
training reaches from a network's latents have a higher loss, and gradient flow does not climb. At
even points grad L vanishes (this loss does not see norms), and with it -K grad L, whatever K is.

Deviations: the paper gives neither loss, tau, widths, noise nor learning rates. Ours: two-view
NT-Xent at tau 0.5; steps as in Fig. 5, 200 with a network and 1000 without. Random latents are
imposed by an offset: f = net - net at the start + R, the same R for both views. The 3-D clusters
are ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sklearn.metrics import adjusted_rand_score, silhouette_score  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.func import functional_call

import chiaroscuro as cs
from chiaroscuro.labs import Erratum, Keep, Stated, at_once, style

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "animation", "claims", "figure", "run"]

NETWORK = Stated(
    "V8.network",
    "through a network (one hidden layer) clusters tighten over the start",
    "Fig. 5, row 2",
    "clusters by iteration 15, stable by 200",
    "silhouette_gain > 0.1 and ari_gain_mean > 0",
    enough="n_seeds >= 3",
)
DEEP = Stated(
    "V8.deep",
    "so they do with four layers, in 2-D and in 3-D",
    "Fig. 6, rows 2 and 5",
    "same behaviour",
    "silhouette_gain_2d > 0.1 and silhouette_gain_3d > 0.1",
    enough="n_seeds >= 3",
)
TABLE = Stated(
    "V8.table",
    "from the same latents, vanilla descent gains less than the network",
    "Figs 5, 6: with and without the network",
    "only the network clusters",
    "difference > 0.1",
    enough="n_seeds >= 3",
)
UNIFORM = Stated(
    "V8.uniform",
    "vanilla descent from random latents ends at the uniform limit, blind to the clusters",
    "Fig. 5, row 3",
    "uniformly dispersed",
    "excess_loss < 1e-3 and ari_end < 0.15",
    enough="steps >= 1000",
)
FORGETS = Erratum(
    "V8.forgets",
    "Sec. 5: vanilla gradient descent forgets all information about the data",
    "vanilla descent from the network's latents ends without the clusters.",
    "ari_end_mean < 0.15",
    "vanilla descent from random latents ends without them.",
    "ari_end_mean < 0.15",
    enough="n_seeds >= 3",
)
RECOVERS = Stated(
    "V8.recovers",
    "training through a network recovers clusters from an invariant map onto the uniform law",
    "end of Sec. 3, Sec. 4.2",
    "recovers from poor initialisation",
    "silhouette_gain_random > 0.1 and silhouette_gain_ordered > 0.1",
    enough="n_seeds >= 3",
)
FADES = Stated(
    "V8.fades",
    "in the long run the structure fades",
    "Abstract: even if it eventually converges to a trivial minimizer",
    "fades",
    "fade > 0.1",
    enough="steps_long >= 5000",
)
HOMOGENEOUS = Erratum(
    "V8.homogeneous",
    "Sec. 4.2.1, eqs. (18), (19) with ReLU, on the data of Fig. 5",
    "trained, the bias-free ReLU network parts the directions of the centres -3 and -1.",
    "distance > 0.1",
    "tanh units with a bias part them.",
    "distance > 0.1",
)
CLAIMS = (NETWORK, DEEP, TABLE, UNIFORM, FORGETS, RECOVERS, FADES, HOMOGENEOUS)


@dataclass(frozen=True)
class Settings:
    """Data, networks and steps.

    Args:
        seeds: data, weights and random latents each.
        per: points of a cluster.
        within, noise: deviations inside a cluster and of the views.
        width: of hidden layers.
        tau: 0.5 as in SimCLR.
        lr_one, lr_deep, lr_free: steps of one hidden layer, four layers and free embeddings.
        steps, steps_free: 200 and 1000 in Fig. 5.
        steps_long: of the long run.
        frames: of the animation.
    """

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    per: int = 15
    within: float = 0.15
    noise: float = 0.3
    width: int = 64
    tau: float = 0.5
    lr_one: float = 0.1
    lr_deep: float = 0.3
    lr_free: float = 1.0
    steps: int = 200
    steps_free: int = 1000
    steps_long: int = 5000
    frames: int = 40


QUICK = Settings(seeds=(0,), per=6, width=32, steps=60, steps_free=100, steps_long=60, frames=8)
LAPTOP = Settings()
PAPER = Settings(seeds=tuple(range(20)), per=100, width=512, steps_long=100000, frames=100)


class Biased(nn.Module):
    """A network that sees a 1 beside its inputs."""

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """The network's output."""
        return self.net(torch.cat([x, torch.ones_like(x[:, :1])], dim=1))


class From(nn.Module):
    """A network moved to start at given outputs on given inputs."""

    def __init__(self, net: nn.Module, x: Tensor, start: Tensor):
        super().__init__()
        self.net = net
        with torch.no_grad():
            self.register_buffer("offset", start - net(x))

    def forward(self, x: Tensor) -> Tensor:
        """The network's output plus the offset."""
        return self.net(x) + self.offset


def unit(z: Tensor) -> Tensor:
    """Rows on the sphere."""
    return z / z.norm(dim=-1, keepdim=True)


def data(settings: Settings, dimensions: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Two views (2n, D) of four clusters, their labels and centres."""
    generator = torch.Generator().manual_seed(seed)
    if dimensions == 2:
        centres = torch.tensor([[-3.0, 0], [-1, 0], [1, 0], [3, 0]], dtype=torch.float64)
    else:
        centres = torch.tensor([[2.0, 0, 0], [0, 2, 0], [-2, 0, 0], [0, -2, 0]]).double()
    labels = torch.arange(4).repeat_interleave(settings.per)
    random = torch.randn(3, len(labels), dimensions, dtype=torch.float64, generator=generator)
    clean = centres[labels] + settings.within * random[0]
    clean[:, -1] = 0.0
    views = []
    for noise in random[1:]:
        view = clean.clone()
        view[:, -1] = settings.noise * noise[:, -1]
        views.append(view)
    return torch.cat(views), labels, centres


def network(settings: Settings, kind: str, dimensions: int, seed: int) -> nn.Module:
    """One hidden layer of tanh units with a bias, the bias-free ReLU one, or four layers."""
    if kind == "one":
        net = cs.dynamics.OneHidden(dimensions + 1, settings.width, dimensions, seed=seed)
        return Biased(net).double()
    if kind == "relu":
        act = torch.relu
        return cs.dynamics.OneHidden(
            dimensions, settings.width, dimensions, act, seed=seed
        ).double()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        w = settings.width
        layers = [nn.Linear(dimensions, w), nn.Tanh(), nn.Linear(w, w), nn.Tanh()]
        layers += [nn.Linear(w, w), nn.Tanh(), nn.Linear(w, dimensions)]
        return nn.Sequential(*layers).double()


def scores(z: Tensor, labels: Tensor) -> tuple[float, float]:
    """Silhouette of the true clusters and ARI of 4-means, of the first view on the sphere."""
    u = unit(z[: len(labels)]).numpy()
    found = cs.graphs.kmeans(u, 4).labels
    return float(silhouette_score(u, labels)), float(adjusted_rand_score(labels, found))


def latents(n: int, d: int, seed: int) -> Tensor:
    """Random points of the sphere, the same for both views."""
    generator = torch.Generator().manual_seed(1000 + seed)
    return unit(torch.randn(n, d, dtype=torch.float64, generator=generator)).repeat(2, 1)


def ordered(x: Tensor, n: int) -> Tensor:
    """Even points of the circle, in the order of the first coordinate."""
    angle = 2 * math.pi * x[:n, 0].argsort().argsort() / n
    return torch.stack([angle.cos(), angle.sin()], dim=1).to(x).repeat(2, 1)


def summary(flow: Any, labels: Tensor) -> dict[str, Any]:
    """Scores at the start and the end, and the loss at the end."""
    (s0, a0), (s1, a1) = scores(flow.z[0], labels), scores(flow.z[-1], labels)
    return {"silhouette": [s0, s1], "ari": [a0, a1], "loss": float(flow.losses[-1])}


def one_seed(settings: Settings, seed: int, picture: bool) -> dict[str, Any]:
    """All flows of one seed."""
    found: dict[str, Any] = {}
    dynamics = cs.dynamics
    objective = cs.InfoNCE(cs.Cosine(tau=settings.tau))
    for case, kind, dimensions in (("one", "one", 2), ("deep", "deep", 2), ("deep3", "deep", 3)):
        x, labels, _ = data(settings, dimensions, seed)
        n = len(labels)
        loss = lambda z, n=n: objective(z[:n], z[n:])
        net = network(settings, kind, dimensions, seed)
        lr = settings.lr_one if kind == "one" else settings.lr_deep
        through = dynamics.Steps(lr, settings.steps)
        free = dynamics.Steps(settings.lr_free, settings.steps_free)
        random = latents(n, dimensions, seed)
        with torch.no_grad():
            own = unit(net(x))
        flows = {
            "network, own": dynamics.training_flow(loss, net, x, through),
            "network, random": dynamics.training_flow(loss, From(net, x, random), x, through),
            "vanilla, own": dynamics.vanilla_flow(loss, own, free, project=unit),
            "vanilla, random": dynamics.vanilla_flow(loss, random, free, project=unit),
        }
        if dimensions == 2:
            even = ordered(x, n)
            start = From(net, x, even)
            flows["network, ordered"] = dynamics.training_flow(loss, start, x, through)
        found[case] = {name: summary(flow, labels) for name, flow in flows.items()}
        if dimensions == 2:
            found[case]["even_loss"] = float(loss(even))
        if picture:
            found[case]["x"] = x[:n].tolist()
            found[case]["film"] = {
                name: film(flows[name], settings.frames, n)
                for name in ("network, own", "vanilla, random")
            }
    return found


def film(flow: Any, frames: int, n: int) -> dict[str, Any]:
    """Directions of the first view at steps that are close early and far apart late."""
    last = len(flow.z) - 1
    steps = sorted({0, 5, 15, last} | {round(last ** (i / frames)) for i in range(frames + 1)})
    steps = [step for step in steps if step <= last]
    points = unit(flow.z[steps][:, :n])
    return {"steps": steps, "u": [[[round(v, 3) for v in p] for p in f] for f in points.tolist()]}


def long_run(settings: Settings, seed: int) -> dict[str, list[float]]:
    """Silhouette over a long training of one hidden layer."""
    x, labels, _ = data(settings, 2, seed)
    n = len(labels)
    objective = cs.InfoNCE(cs.Cosine(tau=settings.tau))
    net = network(settings, "one", 2, seed)
    every = max(1, settings.steps_long // 50)
    steps = cs.dynamics.Steps(settings.lr_one, settings.steps_long, every=every)
    flow = cs.dynamics.training_flow(lambda z: objective(z[:n], z[n:]), net, x, steps)
    return {
        "steps": [round(float(t) / settings.lr_one) for t in flow.times],
        "silhouette": [scores(z, labels)[0] for z in flow.z],
        "loss": flow.losses.tolist(),
    }


def parted(settings: Settings, kind: str, seed: int) -> float:
    """Distance of the directions of the centres -3 and -1 after training."""
    x, labels, centres = data(settings, 2, seed)
    n = len(labels)
    objective = cs.InfoNCE(cs.Cosine(tau=settings.tau))
    net = network(settings, kind, 2, seed)
    steps = cs.dynamics.Steps(settings.lr_one, settings.steps, every=settings.steps)
    flow = cs.dynamics.training_flow(lambda z: objective(z[:n], z[n:]), net, x, steps)
    with torch.no_grad():
        u = unit(functional_call(net, flow.parameters or {}, (centres[:2],)))
    return float((u[0] - u[1]).norm())


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """All seeds, piece by piece."""
    seeds = settings.seeds
    return {
        "rows": [
            keep(f"flows {s}", lambda s=s: one_seed(settings, s, s == seeds[0])) for s in seeds
        ],
        "long": [keep(f"long {s}", lambda s=s: long_run(settings, s)) for s in seeds[:3]],
        "parted": {
            kind: [keep(f"{kind} {s}", lambda s=s, k=kind: parted(settings, k, s)) for s in seeds]
            for kind in ("relu", "one")
        },
        "steps_free": settings.steps_free,
        "steps_long": settings.steps_long,
    }


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """Gains, limits, and what the paper says beyond them."""
    rows = result["rows"]
    n_seeds = len(rows)

    def gain(case: str, flow: str, what: str = "silhouette") -> list[float]:
        return [row[case][flow][what][1] - row[case][flow][what][0] for row in rows]

    def end(case: str, flow: str) -> list[float]:
        return [row[case][flow]["ari"][1] for row in rows]

    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    own = {case: gain(case, "network, own") for case in ("one", "deep", "deep3")}
    difference = [
        a - b
        for case in ("one", "deep", "deep3")
        for a, b in zip(own[case], gain(case, "vanilla, own"), strict=True)
    ]
    two = ("one", "deep")
    excess = [row[c]["vanilla, random"]["loss"] - row[c]["even_loss"] for c in two for row in rows]
    blind = [x for case in two for x in end(case, "vanilla, random")]
    kept = [x for case in two for x in end(case, "vanilla, own")]
    fade = [max(row["silhouette"]) - row["silhouette"][-1] for row in result["long"]]
    return [
        NETWORK.judge(
            silhouette_gain=own["one"],
            ari_gain_mean=mean(gain("one", "network, own", "ari")),
            ari_end=end("one", "network, own"),
            n_seeds=n_seeds,
        ),
        DEEP.judge(
            silhouette_gain_2d=own["deep"], silhouette_gain_3d=own["deep3"], n_seeds=n_seeds
        ),
        TABLE.judge(difference=difference, n_seeds=n_seeds),
        UNIFORM.judge(excess_loss=excess, ari_end=blind, steps=result["steps_free"]),
        FORGETS.judge(
            printed={"ari_end_mean": mean(kept), "ari_end": kept},
            corrected={"ari_end_mean": mean(blind), "ari_end": blind, "n_seeds": n_seeds},
        ),
        RECOVERS.judge(
            silhouette_gain_random=[x for c in two for x in gain(c, "network, random")],
            silhouette_gain_ordered=[x for c in two for x in gain(c, "network, ordered")],
            n_seeds=n_seeds,
        ),
        FADES.judge(fade=fade, steps_long=result["steps_long"]),
        HOMOGENEOUS.judge(
            printed={"distance": result["parted"]["relu"]},
            corrected={"distance": result["parted"]["one"]},
        ),
    ]


LABELS = ("-3", "-1", "1", "3")


def moves(film: dict[str, Any], at: int) -> list[list[float]]:
    """Where each point goes from a frame, the longest arrow 0.3: paths, not speeds, compare.

    To the first later frame by which some point has moved by 0.05 (of the last frame: from the
    last earlier one), for neighbouring frames differ by little more than their rounding.
    """
    frames, last = film["u"], len(film["u"]) - 1
    order = range(at + 1, last + 1) if at < last else range(at - 1, -1, -1)
    sign = 1 if at < last else -1
    found, longest = [[0.0] * len(p) for p in frames[at]], 0.0
    for other in order:
        found = [
            [sign * (b - a) for a, b in zip(p, q, strict=True)]
            for p, q in zip(frames[at], frames[other], strict=True)
        ]
        longest = max(math.hypot(*move) for move in found)
        if longest >= 0.05:
            break
    return [[v * 0.3 / longest if longest else 0.0 for v in move] for move in found]


def circle(axis: Any, film: dict[str, Any], at: int, title: str) -> None:
    """One moment: clusters in colour on the circle (or seen along the third axis), with arrows.

    Those of the circle start outside it: they go along it and would lie under the points.
    """
    points, arrows = film["u"][at], moves(film, at)
    turn = [2 * math.pi * i / 120 for i in range(121)]
    axis.plot([math.cos(t) for t in turn], [math.sin(t) for t in turn], color="#dcdcdc", lw=1)
    per = len(points) // 4
    for c in range(4):
        own = slice(c * per, (c + 1) * per)
        x, y = ([p[k] for p in points[own]] for k in (0, 1))
        u, v = ([move[k] for move in arrows[own]] for k in (0, 1))
        out = 1.15 if len(points[0]) == 2 else 1.0
        axis.quiver(
            [out * a for a in x], [out * b for b in y], u, v, color=style.COLOURS[c], alpha=0.6,
            scale=1, scale_units="xy", angles="xy", width=0.008,
        )  # fmt: skip
        axis.scatter(x, y, s=12, color=style.COLOURS[c], zorder=3, linewidths=0)
    axis.set_aspect("equal")
    axis.set_xlim(-1.5, 1.5)
    axis.set_ylim(-1.5, 1.5)
    style.label(axis, "u_1", "u_2", title)


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """Fig. 5 and the 2-D half of Fig. 6 in rows, the 3-D half below, the table at the end."""
    first = result["rows"][0]
    canvas, axes = style.canvas(4, 5, width=2.15, height=2.15)
    rows = (("one", "network, own"), ("deep", "network, own"), ("one", "vanilla, random"))
    texts = ("one hidden", "four layers", "no network")
    for row, (case, flow), text in zip(axes, rows, texts, strict=False):
        film = first[case]["film"][flow]
        last = film["steps"][-1]
        picked = [0, 5, 15, min(film["steps"], key=lambda s: abs(s - last / 4)), last]
        for axis, step in zip(row, picked, strict=True):
            at = film["steps"].index(min(film["steps"], key=lambda s, t=step: abs(s - t)))
            circle(axis, film, at, f"{text}, step {film['steps'][at]}")
    sphere, plot, long, table = axes[3, 0], axes[3, 1], axes[3, 2], axes[3, 3]
    ends = first["deep3"]["film"]
    for axis, flow, text in (
        (sphere, "network, own", f"3-D, four layers, {ends['network, own']['steps'][-1]}"),
        (plot, "vanilla, random", f"3-D, no network, {ends['vanilla, random']['steps'][-1]}"),
    ):
        circle(axis, ends[flow], len(ends[flow]["u"]) - 1, text)
    for row in result["long"]:
        long.plot(row["steps"], row["silhouette"], color=style.COLOURS[0], alpha=0.8)
    style.label(long, "step", "silhouette", "long run")
    names = ("network, own", "network, random", "vanilla, own", "vanilla, random")
    for i, name in enumerate(names):
        values = [
            row[case][name]["silhouette"][1] - row[case][name]["silhouette"][0]
            for row in result["rows"]
            for case in ("one", "deep")
        ]
        table.scatter(values, [3 - i] * len(values), s=12, color=style.COLOURS[i])
    table.set_yticks(range(4), [name.replace(", ", ",\n") for name in reversed(names)])
    table.set_ylim(-0.5, 3.5)
    table.axvline(0, color=style.GREY, linewidth=0.8)
    style.label(table, "gain in silhouette", "", "the table")
    x = first["one"]["x"]
    per = len(x) // 4
    for c in range(4):
        part = x[c * per : (c + 1) * per]
        axes[3, 4].scatter(
            [p[0] for p in part], [p[1] for p in part], s=12, color=style.COLOURS[c],
            label=LABELS[c],
        )  # fmt: skip
    style.label(axes[3, 4], "x_1", "x_2", "the data")
    return canvas


def animation(result: dict[str, Any], path: Path) -> None:
    """Figs 5 and 6 as they move, in 2-D and in 3-D: through networks and without one."""
    first = result["rows"][0]
    panels = (
        ("one", "network, own", "one hidden"),
        ("deep", "network, own", "four layers"),
        ("one", "vanilla, random", "no network"),
        ("deep3", "network, own", "3-D, four layers"),
        ("deep3", "vanilla, random", "3-D, no network"),
    )
    films = [(first[case]["film"][flow], text) for case, flow, text in panels]
    count = min(24, *(len(film["steps"]) for film, _ in films))

    @style.drawn
    def frame(i: int) -> Any:
        canvas, axes = style.canvas(1, len(films), width=1.55, height=1.8)
        for axis, (film, text) in zip(axes[0], films, strict=True):
            at = round(i * (len(film["steps"]) - 1) / max(1, count - 1))
            circle(axis, film, at, f"{text}: {film['steps'][at]}")
            axis.set(xticks=[], yticks=[])  # fewer bytes, half the time
        return canvas

    style.animate((frame(i) for i in range(count)), path)
