"""Fig. 9: words: perfect synonyms come closest, natural ones come between, unrelated stay apart.

Paper: semantic2025, App. A.11, Fig. 9. Real prose; 100 words are each split into two artificial
synonyms; a sentence with a masked word is the context, the word the symbol; a transformer encodes
contexts, a table words; eq. (2), scalar product.

Judged: distances of rows of artificial, natural (WordNet, first sense of both words) and unrelated
pairs, the means over seeds with their intervals; that the bands are apart, by 95 % bootstrap
intervals over pairs; Spearman's correlation of the cosine with human judgements (SimLex-999). The
three sorts come in triples matched in part of speech and in frequency: splitting a word halves its
frequency, and norms depend on frequency, so that unmatched pairs differ for that alone. word2vec
(skip-gram, gensim) is trained on the same text, with the same synonyms in it, for as many seconds
of one thread; what it gives stands beside.

Results. From rows that start at a tenth of the usual size Fig. 9b appears (lr wd steps is 0.68):
artificial synonyms end at 0.37 of the distance of unrelated words, natural ones at 0.73, three
bands apart on every seed (from so small a start all part, artificial synonyms least; the paper has
them come together). Distances have levelled at the end; the loss still falls, by 0.6 % in the last
twentieth of the steps. For 52 to 64 % of the artificial synonyms the twin is the nearest of 10,000
words. The cosine follows human judgements by 0.18, word2vec by 0.28 in the same seconds. In an
earlier run, with rows of scale 1 at the start, of which decay left 0.94, the bands were there and
the small distance was not (1.41 to 1.27, unrelated words 1.41 to 1.52; judgements 0.08 to 0.11).
Depth, rate, batch and decay were chosen by two-minute pilots on one other seed (9).

Deviations: 76 books before 1929 (275,876 sentences) for 1 % of BookCorpus, which is not free. Words
are drawn by the square root of their frequency, so that rare ones are seen at all; contexts are cut
to 16 tokens. The paper's sizes are not given: ours. The data are beside the project: files
`books_30mb.txt.gz`, `wordnet_synonym_pairs.tsv.gz` and `simlex999.tsv` in the folder that
`CHIARO_DATA` names; without them nothing is run.
"""

from __future__ import annotations

import importlib.util
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr

import chiaroscuro as cs
from chiaroscuro.labs import Keep, Stated, at_once, style
from chiaroscuro.labs.semantic2025._pairs import (
    JUDGED,
    PAIRS,
    TEXT,
    judgements,
    pairs_of,
    triples,
)

__all__ = ["CLAIMS", "LAPTOP", "LONG", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

SORTS = ("artificial", "natural", "unrelated")
ENOUGH = "steps >= 4000 and n_pairs >= 50 and n_seeds >= 3"

ARTIFICIAL = Stated(
    "E4.artificial",
    "artificial synonyms are closer than natural ones of the same frequency and part of speech, "
    "and end at a small distance: less than half of that of unrelated words",
    "App. A.11, Fig. 9",
    "converge to a small distance",
    "mean(difference) > 0 and mean(over_unrelated) < 0.5",
    enough=ENOUGH,
)
NATURAL = Stated(
    "E4.natural",
    "natural synonyms are closer than unrelated words of the same frequency and part of speech",
    "App. A.11, Fig. 9",
    "in between",
    "mean(difference) > 0",
    enough=ENOUGH,
)
BANDS = Stated(
    "E4.bands",
    "the mean distances are three bands: between the 95 % intervals over pairs there is a gap",
    "Fig. 9b",
    "three curves apart",
    "mean(gap_below_natural) > 0 and mean(gap_above_natural) > 0",
    enough=ENOUGH,
)
SIMLEX = Stated(
    "E4.simlex",
    "the cosine of rows follows human judgements, at least half as well as word2vec in the "
    "same time",
    "App. A.11: the patterns are replicated in real data",
    "not measured",
    "mean(spearman) > 0 and mean(share_of_word2vec) > 0.5",
    enough=ENOUGH,
)
CLAIMS = (ARTIFICIAL, NATURAL, BANDS, SIMLEX)


@dataclass(frozen=True)
class Settings:
    """Text, model and training.

    Args:
        seeds: a choice of words, a start and draws each.
        sentences: of the text, from the beginning; None for all.
        vocabulary, least: words known, and their least count; ours.
        n_words: words to split; 100 in App. A.11. As many natural and unrelated pairs.
        rare: the least count of a word in a pair; ours.
        length, power: of contexts and of the law of words; ours.
        start: deviation of the rows at the start; 0.1, so that it is forgotten at these steps.
        d, depth, heads: of the model; the paper does not say.
        steps, batch, lr, weight_decay: ours; the paper says only 1 % of its corpus.
        looks: at how many steps we look.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    sentences: int | None = None
    vocabulary: int = 10_000
    least: int = 20
    n_words: int = 100
    rare: int = 60
    length: int = 16
    power: float = 0.5
    start: float = 0.1
    d: int = 64
    depth: int = 1
    heads: int = 4
    steps: int = 4000
    batch: int = 512
    lr: float = 2e-3
    weight_decay: float = 0.1
    looks: int = 20


QUICK = Settings(
    seeds=(0,), sentences=6000, vocabulary=2000, least=3, n_words=10, rare=8, d=16, depth=1,
    steps=4, batch=32, looks=2,
)  # fmt: skip
LAPTOP = Settings()
LONG = Settings(steps=8000, batch=1024)
PAPER = Settings(
    seeds=(0, 1, 2, 3, 4), vocabulary=30_000, d=256, depth=6, length=64, steps=100_000, lr=1e-3
)


def folder() -> Path | None:
    """Where the three files are; None if one is missing."""
    place = Path(os.environ.get("CHIARO_DATA", ""))
    there = all((place / name).is_file() for name in (TEXT, PAIRS, JUDGED))
    return place if os.environ.get("CHIARO_DATA") and there else None


# ---- measures ----


def lengths(h: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Distances of pairs of rows."""
    return np.linalg.norm(h[pairs[:, 0]] - h[pairs[:, 1]], axis=1)


def cosines(h: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Cosines of pairs of rows."""
    u = h / np.maximum(np.linalg.norm(h, axis=1, keepdims=True), 1e-12)
    return (u[pairs[:, 0]] * u[pairs[:, 1]]).sum(axis=1)


def between(values: np.ndarray, seed: int = 0) -> list[float]:
    """The 95 % bootstrap interval of a mean over pairs."""
    rng = np.random.default_rng(seed)
    means = values[rng.integers(0, len(values), (2000, len(values)))].mean(axis=1)
    return [float(x) for x in np.quantile(means, [0.025, 0.975])]


def agreement(h: np.ndarray, pairs: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """Spearman's correlation of cosines with scores, and its bootstrap interval over pairs."""
    x = cosines(h, pairs)
    rng = np.random.default_rng(0)
    draws = [rng.integers(0, len(x), len(x)) for _ in range(500)]
    low, high = np.quantile([spearmanr(x[i], scores[i]).statistic for i in draws], [0.025, 0.975])
    return {
        "spearman": float(spearmanr(x, scores).statistic), "low": float(low), "high": float(high),
        "n": len(x),
    }  # fmt: skip


def twins(h: np.ndarray, pairs: np.ndarray) -> float:
    """How often the nearest row of one artificial synonym, among all words, is the other."""
    squares = (h**2).sum(axis=1)
    nearest = []
    for a, b in np.concatenate([pairs, pairs[:, ::-1]]):
        away = squares - 2 * h @ h[a]
        away[a] = np.inf
        nearest.append(int(away.argmin()) == b)
    return float(np.mean(nearest))


# ---- training ----


def prepared(settings: Settings, seed: int, place: Path) -> dict[str, Any]:
    """The text with synonyms in it, the pairs to watch, and SimLex's pairs that are known."""
    plain = cs.data.read_corpus(
        place / TEXT, settings.vocabulary, settings.least, settings.sentences
    )
    chosen = triples(plain, settings.n_words, settings.rare, seed, place)
    corpus = plain.with_synonyms(chosen["words"], seed)
    known = [(a, b, s) for a, b, s in judgements(place) if a in corpus.index and b in corpus.index]
    return {
        "corpus": corpus,
        "pairs": pairs_of(corpus, chosen),
        "judged": np.array([[corpus.index[a], corpus.index[b]] for a, b, _ in known]),
        "scores": np.array([score for _, _, score in known]),
        "examples": [[f"{w}_1 {w}_2", " ".join(n), " ".join(u)] for w, n, u in zip(
            chosen["words"][:8], chosen["natural"][:8], chosen["unrelated"][:8], strict=True
        )],
    }  # fmt: skip


def trained(settings: Settings, seed: int, place: Path) -> dict[str, Any]:
    """Table and transformer on the text; distances on the way, everything at the end."""
    data = prepared(settings, seed, place)
    corpus: cs.data.Corpus = data["corpus"]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        table = cs.models.Table(len(corpus.words), settings.d, scale=settings.start)
        encoder = cs.models.SequenceTransformer(
            len(corpus.words), settings.length, settings.d, settings.depth, settings.heads,
            padding=cs.data.corpus.PADDING,
        )  # fmt: skip
        head = torch.nn.Linear(settings.d, settings.d)
    networks = cs.engine.Networks([table, torch.nn.Sequential(encoder, head)])
    solver = torch.optim.AdamW(
        networks.parameters(), lr=settings.lr, weight_decay=settings.weight_decay, fused=True
    )
    objective = cs.InfoNCE(cs.Dot(tau=1.0), cs.OtherView(), anchors="first")
    curve: dict[str, Any] = {"step": [], "loss": [], **{sort: [] for sort in SORTS}}
    every = settings.steps // settings.looks

    def look(step: int, loss: float | None) -> None:
        h = table.weight.detach().numpy().astype(np.float64)
        for sort in SORTS:
            curve[sort].append(float(lengths(h, data["pairs"][sort]).mean()))
        curve["step"].append(step)
        curve["loss"].append(loss)

    def pair(step: int) -> list[torch.Tensor]:
        drawn = corpus.draw(
            settings.batch, settings.length, settings.power, seed, step * settings.batch
        )
        return [torch.from_numpy(x) for x in drawn]

    first = table.weight.detach().clone()
    look(0, None)
    began = time.process_time()
    cs.engine.fit(
        networks,
        objective,
        map(pair, range(settings.steps)),
        solver,
        lambda step: min(1.0, (settings.steps - step) / (0.3 * settings.steps)),
        epochs=settings.steps // every,
        steps_per_epoch=every,
        options=cs.engine.FitOptions(device="cpu"),
        callbacks=[lambda moment: look(moment.step, moment.loss)],
    )
    h = table.weight.detach().numpy().astype(np.float64)
    seconds = time.process_time() - began
    last = table.weight.detach()
    overlap = float(torch.cosine_similarity(first.flatten(), last.flatten(), dim=0))
    return {
        "curve": curve, "seconds": seconds, "examples": data["examples"], "overlap": overlap,
        **ends(h, data),
    }  # fmt: skip


def ends(h: np.ndarray, data: dict[str, Any]) -> dict[str, Any]:
    """Distances of each pair of each sort, their cosines, and the agreement with people."""
    return {
        "distances": {s: lengths(h, data["pairs"][s]).round(5).tolist() for s in SORTS},
        "cosines": {s: cosines(h, data["pairs"][s]).round(5).tolist() for s in SORTS},
        "simlex": agreement(h, data["judged"], data["scores"]),
        "twin": twins(h, data["pairs"]["artificial"]),
    }


def word2vec(settings: Settings, seed: int, place: Path, seconds: float) -> dict[str, Any] | None:
    """gensim's skip-gram on the same text for as many seconds of one thread; None without it."""
    if importlib.util.find_spec("gensim") is None:
        return None
    from gensim.models import Word2Vec

    data = prepared(settings, seed, place)
    corpus: cs.data.Corpus = data["corpus"]
    words = np.array(corpus.words, dtype=object)
    sentences = [
        words[corpus.tokens[a:b]][corpus.tokens[a:b] > cs.data.corpus.MASK].tolist()
        for a, b in zip(corpus.starts[:-1], corpus.starts[1:], strict=True)
    ]
    build = lambda epochs: Word2Vec(
        sentences, vector_size=settings.d, window=5, min_count=1, sg=1, negative=5, workers=1,
        epochs=epochs, seed=seed,
    )  # fmt: skip
    began = time.process_time()
    model = build(1)
    one = time.process_time() - began
    epochs = max(1, round(seconds / one))
    if epochs > 1:
        model = build(epochs)
    h = np.zeros((len(corpus.words), settings.d))
    for word, at in corpus.index.items():
        if word in model.wv:
            h[at] = model.wv[word]
    return {"epochs": epochs, **ends(h, data)}


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """Both models over the seeds, if the data are there."""
    place = folder()
    if place is None:
        return {"missing": f"{TEXT}, {PAIRS} and {JUDGED} in the folder that CHIARO_DATA names"}
    result: dict[str, Any] = {"steps": settings.steps, "rows": [], "word2vec": []}
    for seed in settings.seeds:
        row = keep(f"seed {seed}", lambda s=seed: trained(settings, s, place))
        result["rows"].append(row)
        result["word2vec"].append(
            keep(
                f"word2vec {seed}",
                lambda s=seed, row=row: word2vec(settings, s, place, row["seconds"]),
            )
        )
    return result


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """The order of the three sorts, their intervals, and people's judgements."""
    if "missing" in result:
        return [claim.not_run(result["missing"]) for claim in CLAIMS]
    rows, others = result["rows"], [row for row in result["word2vec"] if row is not None]
    about = {
        "steps": result["steps"],
        "n_seeds": len(rows),
        "n_pairs": [len(r["distances"]["natural"]) for r in rows],
    }

    def apart(far: str, near: str, of: list[Any], key: str = "distances") -> dict[str, list[float]]:
        gaps = [np.array(row[key][far]) - np.array(row[key][near]) for row in of]
        return {
            "difference": [float(gap.mean()) for gap in gaps],
            "difference_low": [between(gap)[0] for gap in gaps],
        }

    def gap(far: str, near: str) -> list[float]:
        ends = zip(ranges[f"{far}_low"], ranges[f"{near}_high"], strict=True)
        return [low - high for low, high in ends]

    ranges: dict[str, Any] = {}
    for sort in SORTS:
        spans = [between(np.array(row["distances"][sort])) for row in rows]
        ranges[f"{sort}_mean"] = [float(np.mean(row["distances"][sort])) for row in rows]
        ranges[f"{sort}_low"] = [span[0] for span in spans]
        ranges[f"{sort}_high"] = [span[1] for span in spans]

    def word2vec_apart(far: str, near: str) -> dict[str, list[float]]:
        distances = apart(far, near, others) if others else {}
        return {f"word2vec_{key}": value for key, value in distances.items()}

    return [
        ARTIFICIAL.judge(
            **apart("natural", "artificial", rows),
            **word2vec_apart("natural", "artificial"),
            over_unrelated=[
                float(np.mean(row["distances"]["artificial"]))
                / float(np.mean(row["distances"]["unrelated"]))
                for row in rows
            ],
            twin_is_nearest=[row["twin"] for row in rows],
            **about,
        ),
        NATURAL.judge(
            **apart("unrelated", "natural", rows), **word2vec_apart("unrelated", "natural"), **about
        ),
        BANDS.judge(
            gap_below_natural=gap("natural", "artificial"),
            gap_above_natural=gap("unrelated", "natural"),
            **ranges,
            **about,
        ),
        SIMLEX.not_run("gensim: `pip install chiaroscuro[word2vec]`")
        if len(others) < len(rows)
        else SIMLEX.judge(
            spearman=[row["simlex"]["spearman"] for row in rows],
            spearman_low=[row["simlex"]["low"] for row in rows],
            share_of_word2vec=[
                row["simlex"]["spearman"] / other["simlex"]["spearman"]
                for row, other in zip(rows, others, strict=True)
            ],
            word2vec=[row["simlex"]["spearman"] for row in others],
            n_judged=[row["simlex"]["n"] for row in rows],
            seconds=[row["seconds"] for row in rows],
            **about,
        ),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """Fig. 9a, the distances of all pairs at the end; 9b, their means on the way; SimLex."""
    canvas, axes = style.canvas(1, 3, width=3.2, height=2.9)
    if "missing" in result:
        for axis in axes[0]:
            style.label(axis, "step", "distance", "not run")
        axes[0, 0].text(0.05, 0.5, "data missing", transform=axes[0, 0].transAxes)
        return canvas
    colours = dict(zip(SORTS, (style.COLOURS[3], style.COLOURS[0], style.COLOURS[4]), strict=True))
    whole, course, people = axes[0]
    for i, sort in enumerate(SORTS):
        values = np.concatenate([row["distances"][sort] for row in result["rows"]])
        spread = np.random.default_rng(i).uniform(-0.25, 0.25, len(values))
        whole.scatter(i + spread, values, s=4, color=colours[sort], alpha=0.5, linewidths=0)
        whole.plot([i - 0.3, i + 0.3], [values.mean()] * 2, color="black", linewidth=1.2)
        for row in result["rows"]:
            course.plot(row["curve"]["step"], row["curve"][sort], color=colours[sort])
        last = float(np.mean([row["curve"][sort][-1] for row in result["rows"]]))
        course.annotate(
            sort, (1.02 * result["steps"], last), color=colours[sort], va="center", fontsize=8
        )
    whole.set_xticks(range(3), SORTS)
    whole.set_ylim(bottom=0)
    style.label(whole, "pairs of words", r"$\|h_u - h_v\|$", "Fig. 9a, at the end")
    course.set_ylim(bottom=0)
    course.set_xlim(0, 1.3 * result["steps"])
    course.set_xticks(np.linspace(0, result["steps"], 3).round())
    style.label(course, "step", r"mean $\|h_u - h_v\|$", "Fig. 9b")
    both = {
        "symbol-context": [row["simlex"] for row in result["rows"]],
        "word2vec": [row["simlex"] for row in result["word2vec"] if row is not None],
    }
    both = {name: rows for name, rows in both.items() if rows}
    for i, rows in enumerate(both.values()):
        for j, one in enumerate(rows):
            people.errorbar(
                i + 0.15 * (j - (len(rows) - 1) / 2), one["spearman"],
                yerr=[[one["spearman"] - one["low"]], [one["high"] - one["spearman"]]], fmt="o",
                color=style.COLOURS[i],
            )  # fmt: skip
    people.axhline(0, color=style.GREY, linewidth=0.8)
    people.set_xticks(range(len(both)), list(both))
    people.set_xlim(-0.5, len(both) - 0.5)
    style.label(
        people, "same text, same seconds", r"Spearman's $\rho$ with SimLex-999", "human judgements"
    )
    return canvas
