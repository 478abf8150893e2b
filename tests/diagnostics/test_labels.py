"""Retrieval by label and few-shot accuracy, against loops and closed forms."""

import numpy as np
import pytest

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.diagnostics import evaluate
from chiaroscuro.diagnostics.semantics.labels import few_shot, label_retrieval
from chiaroscuro.errors import InputError
from chiaroscuro.measures import Labelled

rng = np.random.default_rng(0)


def naive(gallery, queries, k):
    """Average precision and hits, ranked by a loop."""
    precisions, hits = [], []
    for x, y in zip(queries.h, queries.labels, strict=True):
        cosines = [x @ g / np.linalg.norm(x) / np.linalg.norm(g) for g in gallery.h]
        ranked = [gallery.labels[i] for i in sorted(range(len(cosines)), key=lambda i: -cosines[i])]
        seen, parts = 0, []
        for place, label in enumerate(ranked, start=1):
            if label == y:
                seen += 1
                parts.append(seen / place)
        precisions.append(np.mean(parts) if parts else 0.0)
        hits.append(y in ranked[:k])
    return np.mean(precisions), np.mean(hits)


def test_retrieval_is_that_of_the_loop():
    gallery = Labelled(rng.normal(size=(40, 3)), rng.integers(0, 4, 40))
    queries = Labelled(rng.normal(size=(15, 3)), rng.integers(0, 5, 15))  # class 4 is not there
    for k in (1, 3, 10):
        found = label_retrieval(gallery, queries, ks=(k,))
        right = naive(gallery, queries, k)
        np.testing.assert_allclose([found["map"], found[f"recall_{k}"]], right, rtol=1e-12)


def test_perfect_classes_are_retrieved_perfectly():
    rows = Labelled(np.repeat(np.eye(3), 4, axis=0), np.repeat(np.arange(3), 4))
    assert label_retrieval(rows, rows) == {
        "map": 1.0, "recall_1": 1.0, "recall_5": 1.0, "recall_10": 1.0,
    }  # fmt: skip
    assert few_shot(rows, rows, shots=2) == (1.0, 0.0)
    assert few_shot(rows, rows, shots=5) is None


def test_blocks_of_queries_change_nothing():
    gallery = Labelled(rng.normal(size=(30, 3)), rng.integers(0, 3, 30))
    queries = Labelled(rng.normal(size=(600, 3)), rng.integers(0, 3, 600))
    parts = [
        label_retrieval(gallery, Labelled(queries.h[i : i + 1], queries.labels[i : i + 1]))["map"]
        for i in range(600)
    ]
    assert label_retrieval(gallery, queries)["map"] == pytest.approx(np.mean(parts), abs=1e-12)


def test_few_shot_is_that_of_the_loop():
    train = Labelled(rng.normal(size=(30, 4)) + np.repeat(np.eye(3, 4), 10, axis=0) * 2,
                     np.repeat([2, 5, 7], 10))  # fmt: skip
    test = Labelled(rng.normal(size=(20, 4)), rng.choice([2, 5, 7], 20))
    same, accuracies = np.random.default_rng(3), []
    for _ in range(4):
        means = []
        for kind in (2, 5, 7):
            chosen = same.choice(np.flatnonzero(train.labels == kind), 3, replace=False)
            means.append(np.mean([train.h[i] / np.linalg.norm(train.h[i]) for i in chosen], axis=0))
        right = 0
        for x, y in zip(test.h, test.labels, strict=True):
            cosines = [m @ x / np.linalg.norm(m) for m in means]
            right += (2, 5, 7)[int(np.argmax(cosines))] == y
        accuracies.append(right / 20)
    mean, half = few_shot(train, test, shots=3, draws=4, seed=3)
    assert mean == pytest.approx(np.mean(accuracies))
    assert half == pytest.approx(1.96 * np.std(accuracies, ddof=1) / 2)
    with pytest.raises(InputError, match="needs a shot"):
        few_shot(train, test, shots=0)


def test_evaluate_reports_them_beside_the_controls():
    labels, split = np.tile(np.arange(3), 20), np.repeat([0, 1], 30)
    h = np.eye(3)[labels] + 0.01 * rng.normal(size=(60, 3))
    found = evaluate(
        Embeddings(h=h, labels=labels, split=split, layers={"input": rng.normal(size=(60, 5))}),
        probes=["ridge"],
    )
    encoder, raw = found["results"]["encoder"], found["results"]["input"]
    assert encoder["map"] == encoder["recall_1"] == encoder["few_shot_1"] == 1.0
    assert raw["map"] < 0.6
    assert raw["few_shot_5_interval"] > 0
    assert "map" in str(found)
    assert "nearest class mean" in found["protocol"]["few_shot"]
