"""Cases on which the finding `kept_start` was judged once, by one who had not read its rule.

Sources are not those of `planted`, but for the handwriting of wandering digits, with another label.
Harm is what neighbours lose of the labels from the rows `well` to the rows `h`; `start` is from
before training. Settings were chosen by harm alone, before anything was diagnosed with its start.

Trained: tables, projectors and networks of two layers, trained from a large random start over every
rate x decay x steps; tables also from starts of other distributions. `well` is the same objective
from a small start, at a good rate, to the end; `twin` is from a small start, else as the case.
Added: rows of a source with a start added, or instead of them in some columns or some rows.
Healthy: no random start is in the rows. They stand beside a start that they never had, turned,
beside projections or random features of themselves; are well trained from a small start (or torch's
own); or are fine-tuned from a given network, whose rows stand where the start is looked for (once
as they are, once with the fact told that `embed` writes of such a run).
"""

from __future__ import annotations

import copy
import functools
import gzip
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import nn
from torch.nn.functional import avg_pool2d, cross_entropy, normalize

import chiaroscuro as cs

DATA = Path(os.environ.get("CHIARO_DATA", "."))
D, ROWS = 32, 700
GRID = tuple(itertools.product((3e-3, 1e-2), (0.0, 1.0), (100, 300)))  # rate, decay, steps
GOOD, GENTLE = (1e-2, 0.0, 600), (1e-3, 0.0, 100)
TABLE, NETWORK = (0.02, 1.0), (0.2, 5.0)  # small and large starts: a deviation; times torch's
Rows = tuple[np.ndarray, np.ndarray]  # with their labels; or before and after
GIVEN = {"untrained": "before training (pretrained)"}


@dataclass(frozen=True)
class Case:
    kind: str
    name: str
    h: np.ndarray
    start: np.ndarray
    well: np.ndarray
    labels: np.ndarray
    twin: np.ndarray | None = None
    about: dict[str, str] | None = None


def descend(made: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    made.zero_grad()
    loss.backward()
    made.step()


# ---- sources ----


def lines(name: str) -> list[str]:
    return gzip.decompress((DATA / name).read_bytes()).decode().splitlines()


def some(labels: np.ndarray, most: int) -> np.ndarray:
    """Rows at random, at most so many of each label and ROWS in all."""
    order = np.random.default_rng(0).permutation(len(labels))
    kept = np.concatenate([order[labels[order] == k][:most] for k in np.unique(labels)])
    return np.sort(np.random.default_rng(0).permutation(kept)[:ROWS])


def principal(x: np.ndarray, d: int = D) -> np.ndarray:
    u, s, _ = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    return u[:, :d] * s[:d]


def small(images: np.ndarray, side: int) -> np.ndarray:
    x = torch.tensor(images).permute(0, 3, 1, 2).float() / 127.5 - 1
    return avg_pool2d(x, x.shape[-1] // side).numpy()


@functools.cache
def emoji() -> tuple[np.ndarray, ...]:
    """Emoji without variants: rows by their tags, categories, pairs that share a tag, pixels."""
    data = np.load(DATA / "emoji.npz")
    tags = [set(json.loads(line)["tags"]) for line in lines("emoji_captions.jsonl.gz")]
    category = np.unique(data["category"], return_inverse=True)[1]
    own = np.flatnonzero(~data["is_skin_variant"])
    own = own[some(category[own], 110)]
    spoken = Counter(tag for i in own for tag in tags[i])
    known = sorted(tag for tag, count in spoken.items() if 2 <= count <= 60)
    bag = np.array([[float(tag in tags[i]) for tag in known] for i in own])
    rows = principal(bag * np.log(len(own) / bag.sum(axis=0)))
    pixels = small(data["images"][own], 16).reshape(len(own), -1)
    return rows, category[own], np.argwhere(np.triu(bag @ bag.T, 1) > 0), pixels


def synonym_pairs() -> list[list[str]]:
    return [line.split("\t") for line in lines("wordnet_synonym_pairs.tsv.gz")[1:]]


@functools.cache
def words() -> Rows:
    """Words of one part of speech only, by the company they keep in the books."""
    part: dict[str, set[str]] = {}
    for one, two, pos in (row[:3] for row in synonym_pairs()):
        part.setdefault(one, set()).add(pos)
        part.setdefault(two, set()).add(pos)
    read = re.findall(r"[a-z]+", " ".join(lines("books_30mb.txt.gz")).lower())
    often = [word for word, _ in Counter(read).most_common(4000)]
    place = {word: k for k, word in enumerate(often)}
    ids = np.array([place.get(word, -1) for word in read])
    counts = []
    for step, turned in itertools.product((1, 2), (False, True)):
        a, b = (ids[step:], ids[:-step]) if turned else (ids[:-step], ids[step:])
        seen = (a >= 0) & (b >= 0) & (b < 300)
        counts.append(np.bincount(a[seen] * 300 + b[seen], minlength=1_200_000).reshape(4000, 300))
    n = np.concatenate(counts, axis=1) + 1e-9
    lift = np.maximum(np.log(n * n.sum() / n.sum(1, keepdims=True) / n.sum(0)), 0)
    own = np.array([k for k, word in enumerate(often) if len(part.get(word, ())) == 1])
    labels = np.unique([min(part[often[k]]) for k in own], return_inverse=True)[1]
    kept = some(labels, 220)
    return principal(lift[own[kept]]), labels[kept]


def synonyms() -> Rows:
    """Forty large groups of nouns that first senses link, and the pairs."""
    linked = [row[:2] for row in synonym_pairs() if row[2] == "n" and row[4] == row[5] == "1"]
    known, place = np.unique(linked, return_inverse=True)
    a, b = place.reshape(-1, 2).T
    group = connected_components(coo_matrix((np.ones(len(a)), (a, b)), (len(known),) * 2))[1]
    size = np.bincount(group)
    large = np.argsort(-size, kind="stable")
    own = np.isin(group, large[size[large] <= 60][:40])
    new = np.cumsum(own) - 1
    pairs = np.stack([new[a], new[b]], axis=1)[own[a]]
    return np.unique(group[own], return_inverse=True)[1], pairs


def hues() -> Rows:
    """Wandering digits as small pictures, and the hue of their paper in six."""
    data = cs.data.open_data("digits")
    hue = np.asarray(data.column("factors"))[:ROWS, 5]
    x = small(np.asarray(data.column("images"))[:ROWS], 8).reshape(ROWS, -1)
    return principal(x), np.minimum((hue - hue.min()) / np.ptp(hue) * 6, 5).astype(int)


@functools.cache
def pictures() -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """CIFAR-100 pictures of ten groups: pixels, groups, features of networks trained for a while.

    given: trained on the hundred classes of all groups. tuned, moved: the given network, trained on
    for these ten groups at a smaller and a larger rate. own: trained on these groups from the
    beginning; random: the fresh network it began from. All rows are of pictures unseen in training.
    """
    data = np.load(DATA / "cifar100_12k.npz")
    train, parts = torch.tensor(small(data["train_images"], 16)), []
    fine, group = (torch.tensor(data[f"train_{k}labels"]).long() for k in ("", "coarse_"))
    y = data["test_coarse_labels"].astype(int)
    own = np.flatnonzero(y < 10)[:ROWS]
    x = torch.tensor(small(data["test_images"][own], 16))
    torch.manual_seed(0)
    for a, b in ((3, 32), (32, 64), (64, 64)):
        parts += [nn.Conv2d(a, b, 3, stride=2, padding=1), nn.BatchNorm2d(b), nn.ReLU()]
    fresh = nn.Sequential(*parts, nn.Flatten(), nn.Linear(256, 64)).eval()
    all_of, here = torch.arange(len(train)), torch.nonzero(group < 10).flatten()

    def further(net: nn.Module, rows: torch.Tensor, y: torch.Tensor, lr: float, epochs: int):
        net, head = copy.deepcopy(net).train(), nn.Linear(64, 100)
        made = torch.optim.AdamW([*net.parameters(), *head.parameters()], lr, weight_decay=0.05)
        for batch in (b for _ in range(epochs) for b in torch.randperm(len(rows)).split(128)):
            descend(made, cross_entropy(head(net(train[rows[batch]])), y[rows[batch]]))
        return net.eval()

    nets = {"random": fresh, "given": further(fresh, all_of, fine, 2e-3, 8)}
    nets["tuned"] = further(nets["given"], here, group, 5e-4, 4)
    nets["moved"] = further(nets["given"], here, group, 2e-3, 5)
    nets["own"] = further(fresh, here, group, 2e-3, 8)
    with torch.no_grad():
        rows = {name: net(x).numpy().astype(np.float64) for name, net in nets.items()}
    return x.flatten(1).numpy(), y[own], rows


# ---- trainings ----


def contrast(encode: nn.Module, x: torch.Tensor, pairs: np.ndarray, settings: tuple) -> Rows:
    """Rows of x before and after training that draws the two of a pair together, by cosines."""
    lr, decay, steps = settings
    made = torch.optim.AdamW(encode.parameters(), lr, weight_decay=decay)
    draw = np.random.default_rng(1)
    before = encode(x).detach().numpy().astype(np.float64)
    for _ in range(steps):
        a, b = pairs[draw.integers(len(pairs), size=192)].T
        cosines = normalize(encode(x[a])) @ normalize(encode(x[b])).T
        descend(made, cross_entropy(cosines / 0.2, torch.arange(len(a))))
    return before, encode(x).detach().numpy().astype(np.float64)


def table(rows: np.ndarray, pairs: np.ndarray, settings: tuple) -> Rows:
    encode = nn.Embedding.from_pretrained(torch.tensor(rows).float(), freeze=False)
    return contrast(encode, torch.arange(len(rows)), pairs, settings)


def network(x: np.ndarray, y: np.ndarray, settings: tuple, scale: float, deep: bool) -> Rows:
    """A projector or two layers, trained by the labels; weights begin at `scale` times torch's."""
    torch.manual_seed(0)
    two = nn.Linear(x.shape[1], 128), nn.ReLU(), nn.Linear(128, D)
    encode = nn.Sequential(*(two if deep else [nn.Linear(x.shape[1], D)]))
    for weight in encode.parameters():
        weight.data *= scale
    return contrast(encode, torch.tensor(x / x.std()).float(), alike(y), settings)


def alike(y: np.ndarray) -> np.ndarray:
    a, b = np.random.default_rng(0).integers(len(y), size=(2, 40000))
    return np.stack([a, b], axis=1)[(y[a] == y[b]) & (a != b)]


def starts(n: int, seed: int) -> dict[str, np.ndarray]:
    """Random rows of several distributions, of mean square 1."""
    draw = np.random.default_rng(seed)
    made = {
        "normal": draw.normal(size=(n, D)),
        "uniform": draw.uniform(-1, 1, size=(n, D)),
        "sparse": draw.normal(size=(n, D)) * (draw.random((n, D)) < 0.1),
        "orthogonal": np.linalg.qr(draw.normal(size=(n, D)))[0],
        "heavy": draw.standard_t(2.5, size=(n, D)),
        "grouped": draw.normal(size=(40, D))[draw.integers(40, size=n)],
    }
    return {name: h / np.sqrt((h**2).mean()) for name, h in made.items()}


# ---- cases ----


def cases() -> Iterator[Case]:
    yield from of_tables()
    yield from of_networks()
    _, groups, rows = pictures()
    good = {
        "emoji by tags": emoji()[:2],
        "words of books": words(),
        "hues of paper": hues(),
        "network of CIFAR-100": (principal(rows["own"]), groups),
    }
    for name, (x, y) in good.items():
        yield from added(name, x, y)
        yield from beside(name, x, y)
    yield from fine_tuned()


def of_tables() -> Iterator[Case]:
    for name, (y, pairs) in {"emoji": emoji()[1:3], "synonyms": synonyms()}.items():
        made = starts(len(y), 0)
        before, well = table(TABLE[0] * made["normal"], pairs, GOOD)
        yield Case("healthy: trained", f"table of {name}, small start", well, before, well, y)
        few = itertools.product(list(made)[1:], ((1e-2, 0.0, 60), (1e-2, 0.0, 200)))
        for kind, settings in [*(("normal", settings) for settings in GRID), *few]:
            (_, twin), (before, h) = (table(k * made[kind], pairs, settings) for k in TABLE)
            what = "table" if kind == "normal" else "table, other start"
            yield Case(what, f"{name}, {kind}, {settings}", h, before, well, y, twin)


def of_networks() -> Iterator[Case]:
    pixels = {"CIFAR-100": pictures()[:2], "emoji": (emoji()[3], emoji()[1])}
    for (name, (x, y)), deep in itertools.product(pixels.items(), (False, True)):
        kind, rows = "network" if deep else "projector", principal(x, 64)
        before, well = network(rows, y, GOOD, NETWORK[0], deep)
        yield Case("healthy: trained", f"{kind}, {name}, small start", well, before, well, y)
        before, h = network(rows, y, GOOD, 1.0, deep)
        yield Case("healthy: trained", f"{kind}, {name}, torch's start", h, before, well, y)
        for settings in GRID:
            (_, twin), (before, h) = (network(rows, y, settings, k, deep) for k in NETWORK)
            yield Case(kind, f"{name}, {settings}", h, before, well, y, twin)


def added(name: str, x: np.ndarray, y: np.ndarray) -> Iterator[Case]:
    """A start in the rows, without a training."""
    made = {kind: x.std() * h for kind, h in starts(len(x), 1).items()}
    normal = 2 * made.pop("normal")
    for kind, start in made.items():
        for part in (0.15, 0.7, 2.0) if kind in ("uniform", "grouped") else (0.7, 2.0):
            yield Case("added", f"{name}, {kind}, {part}", x + part * start, part * start, x, y)
    yield Case("in columns", name, np.where(np.arange(D) % 2, normal, x), normal, x, y)
    late = np.random.default_rng(2).random((len(x), 1))
    for share in (0.05, 0.4):
        yield Case("in rows", f"{name}, {share}", np.where(late < share, normal, x), normal, x, y)
    unit = lambda h: h / np.linalg.norm(h, axis=1, keepdims=True)
    for part in (0.05, 0.5):
        yield Case("unit", f"{name}, {2 * part}", unit(x + part * normal), unit(normal), x, y)


def beside(name: str, x: np.ndarray, y: np.ndarray) -> Iterator[Case]:
    """Good rows beside a start that is not in them."""
    draw = np.random.default_rng(3)
    turned = x @ np.linalg.qr(draw.normal(size=(D, D)))[0]
    hidden = np.maximum(x / x.std() @ draw.normal(size=(D, 4 * D)), 0)
    for what, h, start in (
        ("beside a table", x, starts(len(x), 4)["normal"]),
        ("beside a grouped table", x, starts(len(x), 4)["grouped"]),
        ("turned, beside a projection", turned, x @ draw.normal(size=(D, D))),
        ("turned, beside a random network", turned, hidden @ draw.normal(size=(4 * D, D))),
    ):
        start = start * (x.std() / start.std())
        yield Case("healthy: never there", f"{name}, {what}", h, start, h, y)


def fine_tuned() -> Iterator[Case]:
    _, y, rows = pictures()
    own = rows["own"]
    yield Case("healthy: trained", "network of CIFAR-100, own start", own, rows["random"], own, y)
    made = [(f"network, {k}", rows[k], rows["given"], own, y) for k in ("tuned", "moved")]
    for name, (x, labels) in (("words of books", words()), ("hues of paper", hues())):
        adapter = nn.Linear(D, D, bias=False)
        nn.init.eye_(adapter.weight)
        before, h = contrast(adapter, torch.tensor(x / x.std()).float(), alike(labels), GENTLE)
        made.append((f"adapter, {name}", h, before, x, labels))
    yield from (Case("healthy: fine-tuned, untold", *one) for one in made)
    yield from (Case("healthy: fine-tuned, told", *one, about=GIVEN) for one in made)
