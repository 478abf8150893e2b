"""Pairs of words to compare: artificial, natural and unrelated, matched in part and frequency."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import chiaroscuro as cs

__all__ = ["JUDGED", "PAIRS", "TEXT", "judgements", "pairs_of", "triples"]

TEXT, PAIRS, JUDGED = "books_30mb.txt.gz", "wordnet_synonym_pairs.tsv.gz", "simlex999.tsv"


def triples(
    corpus: cs.data.Corpus, n_words: int, rare: int, seed: int, place: Path
) -> dict[str, Any]:
    """Natural pairs, for each a word to split and an unrelated pair: same part, alike in count."""
    listed = cs.data.read_synonyms(place / PAIRS)
    counts, index = corpus.counts, corpus.index
    parts: dict[str, set[str]] = {}
    related = set()
    for one in listed:
        related |= {(one.first, one.second), (one.second, one.first)}
        for word in (one.first, one.second):
            if word in index:
                parts.setdefault(one.part, set()).add(word)
    rng = np.random.default_rng([seed, 9])
    good = [
        one
        for one in listed
        if one.ranks == (1, 1)
        and one.first != one.second
        and all(w in index and counts[index[w]] >= rare for w in (one.first, one.second))
        and abs(np.log(counts[index[one.first]] / counts[index[one.second]])) < np.log(3)
    ]
    used: set[str] = set()
    by_kind: dict[str, Any] = {"natural": [], "words": [], "unrelated": []}

    def near(part: str, count: float, apart_from: str = "") -> str | None:
        """An unused word of the part, one of the five nearest in count."""
        words = [
            w
            for w in sorted(parts[part] - used)
            if w != apart_from and (w, apart_from) not in related
        ]
        gaps = np.abs(np.log([counts[index[w]] for w in words]) - np.log(count))
        close = np.argsort(gaps, kind="stable")[:5]
        close = close[gaps[close] < np.log(1.5)]
        return words[int(rng.choice(close))] if len(close) else None

    for i in rng.permutation(len(good)):
        one = good[i]
        pair = (one.first, one.second)
        if len(by_kind["natural"]) == n_words or used & set(pair):
            continue
        each = [float(counts[index[w]]) for w in pair]
        taken = set(used)
        used |= set(pair)
        split = near(one.part, 2 * float(np.sqrt(each[0] * each[1])))
        used |= {split} if split else set()
        first = near(one.part, each[0])
        used |= {first} if first else set()
        second = near(one.part, each[1], first or "")
        if split is None or first is None or second is None:
            used = taken
            continue
        used.add(second)
        by_kind["natural"].append(pair)
        by_kind["words"].append(split)
        by_kind["unrelated"].append((first, second))
    return by_kind


def judgements(place: Path) -> list[tuple[str, str, float]]:
    """SimLex-999: two words and how similar people find them."""
    lines = (place / JUDGED).read_text(encoding="utf-8").splitlines()[1:]
    rows = (line.split("\t") for line in lines if line.strip())
    return [(a, b, float(score)) for a, b, score in rows]


def pairs_of(corpus: cs.data.Corpus, chosen: dict[str, Any]) -> dict[str, np.ndarray]:
    """The three sorts as tokens (n, 2) of the corpus with synonyms in it."""
    index = corpus.index
    named = {
        "artificial": [(f"{word}_1", f"{word}_2") for word in chosen["words"]],
        "natural": chosen["natural"],
        "unrelated": chosen["unrelated"],
    }
    return {
        sort: np.array([[index[a], index[b]] for a, b in pairs]) for sort, pairs in named.items()
    }
