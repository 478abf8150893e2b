"""Diagnostics against closed forms, naive loops and scikit-learn; extremes; invariances."""

import json
import math

import numpy as np
import pytest
import torch

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.diagnostics import (
    Labelled,
    alignment,
    effective_rank,
    evaluate,
    knn_accuracy,
    knn_leave_one_out,
    logistic_probe,
    mean_cosine,
    numerical_rank,
    participation_ratio,
    retrieval,
    ridge_probe,
    sgd_probe,
    table,
    uniformity,
    zero_shot_accuracy,
)
from chiaroscuro.diagnostics.assembly.folds import RidgeFolds
from chiaroscuro.errors import InputError
from chiaroscuro.measures import knn_accuracies

RANKS = [effective_rank, participation_ratio, numerical_rank]
SPHERE = [uniformity, mean_cosine]


def clusters(n=240, d=8, spread=1.2, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 4
    centres = np.random.default_rng(9).normal(size=(4, d))
    return Labelled(centres[labels] + spread * rng.normal(size=(n, d)), labels)


# ---- spectrum ----


@pytest.mark.parametrize("rank", RANKS)
def test_ranks_at_their_extremes(rank):
    cross = torch.cat([torch.eye(5), -torch.eye(5)])
    assert rank(cross) == pytest.approx(5)
    line = torch.arange(6.0)[:, None] * torch.tensor([1.0, 2.0, 3.0]) + 7
    assert rank(line) == pytest.approx(1)
    assert rank(torch.full((9, 4), 0.1)) == 0
    assert rank(cross * 1e6) == pytest.approx(5)
    assert rank(cross + 3.0) == pytest.approx(5)


def test_ranks_are_their_formulas():
    rng = np.random.default_rng(0)
    h = rng.normal(size=(50, 7)) * np.array([9, 4, 2, 1, 0.5, 1e-2, 1e-4]) + 3
    s = np.linalg.svd(h - h.mean(0), compute_uv=False)
    p = s / s.sum()
    assert effective_rank(h) == pytest.approx(math.exp(-(p * np.log(p)).sum()))
    assert participation_ratio(h) == pytest.approx((s**2).sum() ** 2 / (s**4).sum())
    C = np.cov(h.T)
    assert participation_ratio(h) == pytest.approx(np.trace(C) ** 2 / np.trace(C @ C))
    assert numerical_rank(h) == sum(x > 1e-3 * s[0] for x in s) == 6


# ---- sphere ----


def test_sphere_is_its_formulas():
    rng = np.random.default_rng(0)
    h = rng.normal(size=(30, 3)) + 0.5
    u = h / np.linalg.norm(h, axis=1, keepdims=True)
    pairs = [(i, j) for i in range(30) for j in range(30) if i != j]
    naive = np.mean([math.exp(-2 * ((u[i] - u[j]) ** 2).sum()) for i, j in pairs])
    assert uniformity(h) == pytest.approx(math.log(naive))
    assert mean_cosine(h) == pytest.approx(np.mean([u[i] @ u[j] for i, j in pairs]))
    w = rng.normal(size=(30, 3))
    cosines = (u * w).sum(1) / np.linalg.norm(w, axis=1)
    assert alignment(h, w) == pytest.approx(2 - 2 * cosines.mean())


def test_sphere_in_chunks_is_the_same(monkeypatch):
    h = torch.randn(70, 5)
    whole = uniformity(h)
    monkeypatch.setattr("chiaroscuro.measures.sphere.CHUNK", 16)
    assert uniformity(h) == pytest.approx(whole)


def test_uniformity_of_the_uniform_law():
    """On the circle, E exp(-2 |u - v|^2) = exp(-4) I_0(4)."""
    angle = 2 * math.pi * torch.arange(2000, dtype=torch.float64) / 2000
    h = torch.stack([angle.cos(), angle.sin()], 1)
    bessel = float(torch.special.i0(torch.tensor(4.0, dtype=torch.float64)))
    n = len(h)
    mean = (math.exp(-4) * bessel * n - 1) / (n - 1)  # without the n pairs of a point and itself
    assert uniformity(h) == pytest.approx(math.log(mean), abs=1e-9)
    assert mean_cosine(h) == pytest.approx(-1 / (n - 1))


def test_collapse():
    h = torch.ones(10, 4) * 0.3
    assert uniformity(h) == pytest.approx(0)
    assert mean_cosine(h) == pytest.approx(1)
    assert alignment(h, 2 * h) == pytest.approx(0)


@pytest.mark.parametrize("measure", [*RANKS, *SPHERE])
def test_rotations_and_permutations_change_nothing(measure):
    torch.manual_seed(0)
    h = torch.randn(40, 6, dtype=torch.float64) @ torch.randn(6, 6, dtype=torch.float64)
    rotation = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64))[0]
    assert measure(h @ rotation) == pytest.approx(measure(h))
    assert measure(h[torch.randperm(40)]) == pytest.approx(measure(h))
    if measure in SPHERE:
        assert measure(h * torch.rand(40, 1).add(0.5)) == pytest.approx(measure(h))


@pytest.mark.parametrize("measure", [*RANKS, *SPHERE])
def test_bad_rows_are_named(measure):
    with pytest.raises(InputError, match=r"received \(3,\)"):
        measure(torch.zeros(3))
    with pytest.raises(InputError, match="at least 2 rows"):
        measure(torch.zeros(1, 3))
    with pytest.raises(InputError, match="1 of 3 rows have NaN or infinity, the first is row 2"):
        measure([[1.0, 2.0], [0.0, 1.0], [math.nan, 0.0]])


# ---- neighbours ----


def naive_knn(train, test, k, vote):
    hits = 0
    for q, truth in zip(test.h, test.labels, strict=True):
        s = [q @ b / np.linalg.norm(q) / np.linalg.norm(b) for b in train.h]
        nearest = sorted(range(len(s)), key=lambda j: -s[j])[:k]
        votes = {}
        for j in nearest:
            weight = math.exp(s[j] / 0.07) if vote == "weighted" else 1 + 1e-6 * s[j]
            votes[train.labels[j]] = votes.get(train.labels[j], 0) + weight
        hits += max(votes, key=votes.get) == truth
    return hits / len(test.h)


@pytest.mark.parametrize("vote", ["weighted", "majority"])
@pytest.mark.parametrize("k", [1, 5, 20])
def test_neighbours_are_the_naive_loop(vote, k):
    train, test = clusters(), clusters(60, seed=1)
    found = knn_accuracy(train, test, k, vote)
    assert found == pytest.approx(naive_knn(train, test, k, vote))
    assert 0.3 < found < 1


def test_several_numbers_of_neighbours_are_each_alone():
    train, test = clusters(), clusters(60, seed=1)
    votes = ("weighted", "majority")
    found = knn_accuracies(train, test, (5, 20), votes)
    assert len(set(found.values())) > 2
    for (k, vote), share in found.items():
        assert share == knn_accuracy(train, test, k, vote)


@pytest.mark.parametrize("vote", ["weighted", "majority"])
def test_leave_one_out_leaves_one_out(vote):
    h, labels = clusters(50)
    keep = lambda i: [j for j in range(50) if j != i]
    each = [
        knn_accuracy(Labelled(h[keep(i)], labels[keep(i)]), Labelled(h[[i]], labels[[i]]), 7, vote)
        for i in range(50)
    ]
    assert knn_leave_one_out(h, labels, 7, vote) == pytest.approx(np.mean(each))


def test_neighbours_refuse_what_they_cannot_do():
    train = clusters(20)
    with pytest.raises(InputError, match="needs 1 to 20 neighbours, of 20 samples; received 200"):
        knn_accuracy(train, train, 200)
    with pytest.raises(InputError, match="3 of 20 are negative"):
        knn_accuracy(Labelled(train.h, np.r_[[-1] * 3, [0] * 17]), train)
    with pytest.raises(InputError, match="for each of 20 rows"):
        knn_accuracy(Labelled(train.h, train.labels[:5]), train)
    with pytest.raises(InputError, match="received 8 and 3"):
        knn_accuracy(train, Labelled(np.ones((2, 3)), np.array([0, 1])), 3)


# ---- probes ----


def standardised(train, test):
    mean, std = train.h.mean(0), train.h.std(0)
    return (train.h - mean) / std, (test.h - mean) / std


def test_ridge_and_logistic_are_scikit_learns():
    linear_model = pytest.importorskip("sklearn.linear_model")
    train, test = clusters(), clusters(200, seed=1)
    X, X_test = standardised(train, test)
    theirs = linear_model.RidgeClassifier(alpha=1.0).fit(X, train.labels)
    assert ridge_probe(train, test) == pytest.approx(theirs.score(X_test, test.labels))
    theirs = linear_model.LogisticRegression(C=1.0, tol=1e-8, max_iter=1000).fit(X, train.labels)
    assert logistic_probe(train, test) == pytest.approx(theirs.score(X_test, test.labels))


def test_ridge_with_more_features_than_rows_is_the_same_formula():
    linear_model = pytest.importorskip("sklearn.linear_model")
    train, test = clusters(40, d=100), clusters(200, d=100, seed=1)
    X, X_test = standardised(train, test)
    theirs = linear_model.RidgeClassifier(alpha=1.0).fit(X, train.labels)
    assert ridge_probe(train, test) == pytest.approx(theirs.score(X_test, test.labels))


@pytest.mark.parametrize("shape", [(300, 8), (300, 60), (60, 80)])
@pytest.mark.parametrize("folds", [1, 5])
def test_ridge_over_folds_is_one_probe_for_each(shape, folds):
    """A dimension that only one part moves, a large offset, and a class that only one part has."""
    draw = np.random.default_rng(0)
    n, d = shape
    part = draw.permutation(n) % (5 if folds > 1 else 3)
    parts = [part == k for k in range(folds)]
    y = draw.integers(0, 4, n)
    y[parts[0]] = np.where(draw.random(int(parts[0].sum())) < 0.2, 4, y[parts[0]])
    x = draw.normal(size=(n, d)) + np.eye(5, d)[y] * 1.5 + 1e4
    x[:, 2] = np.where(parts[0], draw.normal(size=n), 7.0)
    x[:, 3] = 1e-5
    probe = RidgeFolds(x, parts)
    for labels in (y, draw.permutation(y)):
        right = [
            ridge_probe(Labelled(x[~mask], labels[~mask]), Labelled(x[mask], labels[mask]))
            * mask.sum()
            for mask in parts
        ]
        want = sum(right) / sum(mask.sum() for mask in parts)
        assert probe.accuracy(labels) == pytest.approx(want, abs=1e-12)
    one = np.zeros(n, dtype=int)
    one[parts[0]] = draw.integers(0, 2, int(parts[0].sum()))
    if folds == 1:  # trained on one class only
        assert probe.accuracy(one) == (one[parts[0]] == 0).mean()


@pytest.mark.parametrize("probe", [ridge_probe, logistic_probe, sgd_probe])
def test_probes_at_their_extremes(probe):
    train, test = clusters(spread=0.05), clusters(spread=0.05, seed=1)
    assert probe(train, test) == 1.0
    rng = np.random.default_rng(0)
    noise = Labelled(rng.normal(size=(240, 8)), train.labels)
    assert probe(noise, Labelled(rng.normal(size=(240, 8)), test.labels)) < 0.4
    constant = Labelled(np.c_[train.h, np.full(240, 3.0)], train.labels)
    assert probe(constant, Labelled(np.c_[test.h, np.full(240, 3.0)], test.labels)) == 1.0
    with pytest.raises(InputError, match="at least 2 classes"):
        probe(Labelled(train.h, np.zeros(240, int)), test)


def test_the_sgd_probe_is_torchs_sgd():
    """The gradient written out is autograd's."""
    train, test = clusters(100), clusters(50, seed=1)
    X, y = torch.tensor(train.h).float(), torch.tensor(train.labels)
    draw = torch.Generator().manual_seed(0)
    head = torch.nn.Linear(8, 4)
    bound = 1 / math.sqrt(8)
    with torch.no_grad():
        head.weight.copy_(torch.empty(8, 4).uniform_(-bound, bound, generator=draw).T)
        head.bias.uniform_(-bound, bound, generator=draw)
    sgd = torch.optim.SGD(head.parameters(), lr=0.3, weight_decay=1e-6)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(sgd, T_max=6 * 2)
    for _ in range(6):
        for some in torch.randperm(100, generator=draw).split(64):
            sgd.zero_grad()
            torch.nn.functional.cross_entropy(head(X[some]), y[some]).backward()
            sgd.step()
            schedule.step()
    scores = head(torch.tensor(test.h).float()).argmax(1).numpy()
    assert sgd_probe(train, test, epochs=6) == pytest.approx((scores == test.labels).mean())


# ---- evaluation ----


def test_evaluation_states_its_protocol_and_its_controls():
    h, labels = clusters(400, spread=0.1)
    rng = np.random.default_rng(0)
    unlabelled = np.where(np.arange(400) < 10, -1, labels)
    embeddings = Embeddings(
        h=h,
        z=h[:, :4],
        layers={"untrained": rng.normal(size=(400, 5))},
        labels=unlabelled,
        split=np.repeat([0, 1], [300, 100]),
        thumbnails=rng.integers(0, 255, (400, 4, 4, 3), dtype=np.uint8),
    )
    found = evaluate(embeddings)
    assert list(found["results"]) == ["input", "untrained", "encoder", "projector"]
    assert found["results"]["encoder"]["linear"] == found["results"]["encoder"]["knn_20"] == 1.0
    for control in ("input", "untrained"):
        assert found["results"][control]["knn_20"] < 0.45
        assert found["results"][control]["linear_sgd"] < 0.45
    assert found["protocol"]["n_train"] == 290
    assert found["protocol"]["n_test"] == 100
    assert found["protocol"]["n_unlabelled"] == 10
    assert set(found["protocol"]["linear"]) == {"linear", "linear_sgd"}


def test_a_pretrained_control_is_named():
    h, labels = clusters(100)
    given = {"h": h, "labels": labels, "split": np.arange(100) % 2, "layers": {"untrained": h}}
    found = evaluate(Embeddings(**given), ["ridge"])
    assert found["protocol"]["trained_on"] == "not known"
    assert found["protocol"]["untrained"] == "before training"
    about = {"untrained": "before training (pretrained)"}
    found = evaluate(Embeddings(**given, about=about), ["ridge"])
    assert found["protocol"]["untrained"] == "before training (pretrained)"
    assert table(found).startswith("untrained is before training (pretrained)")


def test_evaluation_says_what_is_missing():
    h, labels = clusters(100)
    found = evaluate(Embeddings(h=h, labels=labels, split=np.arange(100) % 2), ["ridge"])
    assert found["results"]["encoder"]["knn_200"] is None
    assert "layer_untrained" in found["results"]["untrained"]["missing"]
    with pytest.raises(InputError, match="needs a held-out `split`"):
        evaluate(Embeddings(h=h, labels=labels))
    with pytest.raises(InputError, match="0 for the test"):
        evaluate(Embeddings(h=h, labels=labels, split=np.zeros(100, int)))
    with pytest.raises(InputError, match="not `svm`"):
        evaluate(Embeddings(h=h, labels=labels, split=np.arange(100) % 2), ["svm"])


def test_the_test_side_is_never_fitted():
    """Changing the labels of the test side changes no prediction: accuracies of two labels add."""
    h, labels = clusters(200, spread=2.0)
    split = np.arange(200) // 100
    flipped = np.where(split == 1, (labels + 1) % 4, labels)
    scores = [
        evaluate(Embeddings(h=h, labels=y, split=split), ["ridge"])["results"]["encoder"]
        for y in (labels, *((np.where(split == 1, (labels + k) % 4, labels)) for k in (1, 2, 3)))
    ]
    assert flipped.shape == labels.shape
    for key in ("knn_20", "linear"):
        assert sum(score[key] for score in scores) == pytest.approx(1.0)


def with_pairs(n=60, classes=3, seed=0, **more):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    z1 = rng.normal(size=(n, 5))
    z2 = z1 + 0.4 * rng.normal(size=(n, 5))
    given = {
        "h": rng.normal(size=(n, 4)),
        "z": z1,
        "z1": z1,
        "z2": z2,
        "texts": [f"t{i}" for i in range(n)],
        "split": np.arange(n) // (n // 2),
        "layers": {f"untrained_z{s}": rng.normal(size=(n, 5)) for s in (1, 2)},
    }
    named = {
        "labels": labels,
        "class_names": ["a", "b", "c"],
        "prompts": ["an a", "a b", "a c"],
        "prompt_z": np.stack([z1[labels == c].mean(0) for c in range(classes)]),
        "untrained_prompt_z": rng.normal(size=(classes, 5)),
    }
    return Embeddings(**{**given, **(named if more.pop("named", True) else {}), **more})


def test_evaluation_of_pairs_is_retrieval_on_the_held_out_side():
    embeddings = with_pairs()
    found = evaluate(embeddings, ["ridge"])
    test = embeddings.split == 1
    results = found["results"]
    assert results["projector"]["retrieval"] == retrieval(embeddings.z1[test], embeddings.z2[test])
    assert results["projector"]["retrieval"]["n_images"] == found["protocol"]["n_pairs"] == 30
    assert results["projector"]["retrieval"]["image_to_text"]["recall_1"] > 0.5
    assert results["untrained"]["retrieval"]["image_to_text"]["recall_1"] < 0.2
    assert results["projector"]["zero_shot"] == pytest.approx(
        zero_shot_accuracy(embeddings.z1[test], embeddings.prompt_z, embeddings.labels[test])[
            "zero_shot"
        ]
    )
    assert found["protocol"]["prompts"] == ["an a", "a b", "a c"]
    assert "linear" in results["encoder"]
    assert json.loads(json.dumps(found)) == found
    lines = table(found).splitlines()
    assert sum("held-out pairs" in line for line in lines) == 2
    assert any(line.startswith("zero-shot, 3 prompts") for line in lines)
    assert [line.split()[0] for line in lines].count("projector") == 3


def test_pairs_without_labels_are_matched_alone():
    found = evaluate(with_pairs(named=False, layers={}))
    assert "n_train" not in found["protocol"]
    assert found["results"]["encoder"] == {}
    assert "layer_untrained_z1" in found["results"]["untrained"]["retrieval"]["missing"]
    assert table(found).startswith("image to text, 30 held-out pairs")
    with pytest.raises(InputError, match="held-out `split`"):
        evaluate(with_pairs(named=False, split=None))
    with pytest.raises(InputError, match="held-out pairs, `split` 1; received 0"):
        evaluate(with_pairs(named=False, split=np.zeros(60, int)))


def test_a_probe_that_diverged_is_no_number():
    h, labels = clusters(200)
    found = evaluate(Embeddings(h=h * 1e30, labels=labels, split=np.arange(200) // 100))
    assert found["results"]["encoder"]["linear_sgd"] is None
    assert found["results"]["encoder"]["linear"] > 0.5
