"""Hard negatives: against a loop over all pairs, and the loss of triples against its formula."""

import json
import re

import numpy as np
import pytest
import torch

import chiaroscuro as cs
from chiaroscuro.artifacts import Embeddings
from chiaroscuro.cli import main
from chiaroscuro.data import open_data
from chiaroscuro.engine import FitOptions, Networks, build, read_settings, step
from chiaroscuro.engine.crops import Triples
from chiaroscuro.engine.state import begin
from chiaroscuro.engine.step import take_step
from chiaroscuro.engine.stream import view_batches
from chiaroscuro.errors import InputError
from chiaroscuro.mining import mine, save_triples
from planting import plant


def rows(n=40, seed=0):
    rng = np.random.default_rng(seed)
    return {"x": rng.normal(size=(n, 4)).astype(np.float32), "labels": np.arange(n) % 4}


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


@pytest.mark.parametrize(
    "index", ["exact", pytest.param("faiss", marks=pytest.mark.extra("faiss"))]
)
def test_negatives_are_those_of_a_loop_over_all_pairs(index):
    table = rows()
    x, y = table["x"], table["labels"]
    triples = mine(
        Embeddings(h=x), table, negatives=2, skip=1, margin=0.1, look=39, index=index, seed=5
    )
    kept = [int(np.flatnonzero((x == row).all(axis=1))[0]) for row in triples.column("x")]
    assert 5 < len(kept) < 40
    where = lambda row: int(np.flatnonzero((x == row).all(axis=1))[0])
    for at, i in enumerate(kept):
        p = where(triples.column("second_view")[at])
        assert y[p] == y[i]
        assert p != i
        most = 0.9 * cosine(x[i], x[p])
        others = [j for j in range(40) if y[j] != y[i] and cosine(x[i], x[j]) <= most]
        others.sort(key=lambda j, i=i: -cosine(x[i], x[j]))
        assert [where(row) for row in triples.column("negatives")[at]] == others[1:3]


def test_pairs_are_mined_among_the_other_sides():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(30, 4)).astype(np.float32)
    second = x + 0.1 * rng.normal(size=(30, 4)).astype(np.float32)
    table = open_data(
        [(torch.from_numpy(a), torch.from_numpy(b)) for a, b in zip(x, second, strict=True)]
    )
    triples = mine(Embeddings(h=x, layers={"second": second}), table, margin=0.0, look=29)
    assert np.array_equal(triples.column("second_view"), second)
    for i, (negative,) in enumerate(triples.column("negatives")):
        most = cosine(x[i], second[i])
        others = [j for j in range(30) if j != i and cosine(x[i], second[j]) <= most]
        best = max(others, key=lambda j, i=i: cosine(x[i], second[j]))
        assert np.array_equal(negative, second[best])


def test_groups_are_never_negatives():
    table = rows() | {"groups": np.arange(40) // 20}
    triples = mine(Embeddings(h=table["x"]), table, margin=0.0, look=39)
    x = table["x"]
    for row, (negative,) in zip(triples.column("x"), triples.column("negatives"), strict=True):
        i, j = (int(np.flatnonzero((x == one).all(axis=1))[0]) for one in (row, negative))
        assert i // 20 != j // 20


WRONG = {
    "look": ({"negatives": 3, "look": 2}, "received 3, 0 and 2"),
    "margin": ({"margin": 2.0}, "from 0 to 1; received 2.0"),
    "index": ({"index": "annoy"}, "one of exact, faiss; received `annoy`"),
    "none": ({"margin": 1.0, "skip": 38, "look": 39}, "for none of 40 samples among 39"),
}


@pytest.mark.parametrize(("given", "sentence"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_mined(given, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        mine(Embeddings(h=rows()["x"]), rows(), **given)


def test_data_without_positives_or_of_another_length_are_refused():
    x = rows()["x"]
    with pytest.raises(InputError, match="needs positives: ready pairs"):
        mine(Embeddings(h=x), {"x": x})
    with pytest.raises(InputError, match="needs vectors `h` of 40 rows"):
        mine(Embeddings(h=x[:7]), rows())


# ---- training on triples ----


def begun(sets=()):
    small = ["network.encoder=MLP(d_in=4, d=6, depth=2, width=8)", "batch=5", "views.first="]
    small += ["network.projector=Projector(d=3, depth=1, last='none')", "optimiser.name=sgd"]
    small += ["optimiser.lr=0.1", "optimiser.momentum=0", "optimiser.weight_decay=0"]
    small += ["objective=InfoNCE(Cosine(tau=0.1), OtherView(), anchors='first')"]
    settings = read_settings("simclr", [*small, *sets])
    options = FitOptions.of(settings)
    networks = build(settings.network, 0).double()
    return begin(networks, settings.make_objective(), settings.optimiser, options), options


def batch(n=5, k=2):
    draw = torch.Generator().manual_seed(0)
    make = lambda m: torch.randn(m, 4, generator=draw, dtype=torch.float64)
    return make(n), make(n), make(n * k)


@pytest.mark.parametrize("micro", [0, 2])
def test_hard_negatives_are_candidates_of_every_anchor(micro):
    """log(sum_j e^(cos(a_i, p_j)/tau) + sum_jk e^(cos(a_i, n_jk)/tau)) - cos(a_i, p_i)/tau."""
    state, options = begun([f"micro_batch={micro}"])
    naive, _ = begun()
    x1, x2, x3 = batch()
    found = float(take_step(state, state.networks, (x1, Triples([x2, x3]), None), options, 1))
    net = naive.networks
    a, p, n = (torch.nn.functional.normalize(net(x), dim=1) for x in (x1, x2, x3))
    logits = torch.cat([a @ p.T, a @ n.T], dim=1) / 0.1
    right = torch.nn.functional.cross_entropy(logits, torch.arange(5))
    assert found == pytest.approx(float(right.detach()), rel=1e-10)
    net.zero_grad()
    right.backward()
    for moved, start in zip(state.networks.parameters(), net.parameters(), strict=True):
        right_place = start.detach() - 0.1 * start.grad
        torch.testing.assert_close(moved.detach(), right_place, rtol=1e-8, atol=1e-10)


PLANTED = {
    "hard negatives left out": (step, "_of_triples", "y, views)", "y, None)"),
    "hard negatives do not learn": (step, "_of_triples", "z[2].split", "z[2].detach().split"),
    "positives for hard negatives": (Networks, "forward", "x2[1], side=1", "x2[0], side=1"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_every_planted_mistake_is_caught(name, monkeypatch):
    with monkeypatch.context() as patch:
        plant(patch, *PLANTED[name])
        with pytest.raises(AssertionError):
            test_hard_negatives_are_candidates_of_every_anchor(0)


def test_targets_and_other_objectives_refuse_triples():
    x1, x2, x3 = batch()
    state, options = begun(["objective=BYOL()"])
    with pytest.raises(InputError, match="further candidates, such as `InfoNCE`; received `BYOL`"):
        take_step(state, state.networks, (x1, Triples([x2, x3]), None), options, 1)
    state, options = begun(["network.momentum=0.9"])
    with pytest.raises(InputError, match="need both sides to learn"):
        take_step(state, state.networks, (x1, Triples([x2, x3]), None), options, 1)


def test_a_file_of_triples_trains(tmp_path, capsys):
    table = rows()
    np.savez(tmp_path / "x.npz", **table)
    sets = ["epochs=1", "batch=8", "views.first=", "schedule.warmup=0", "network.projector="]
    sets += ["network.encoder=MLP(d_in=4, d=3)", f"data.source={tmp_path / 'x.npz'}"]
    cs.train(read_settings("simclr", sets), tmp_path / "run")
    call = ["mine", str(tmp_path / "run"), "--out", str(tmp_path / "triples.npz")]
    assert main([*call, "--negatives", "2", "--margin", "0"]) == 0
    said = capsys.readouterr()
    assert "triples of" in said.err
    triples = open_data(str(tmp_path / "triples.npz"))
    assert triples.inputs == ("x", "second_view")
    x1, x2, _ = view_batches(triples, batch=4)[0]
    assert isinstance(x2, Triples)
    assert [len(x) for x in (x1, *x2)] == [4, 4, 8]
    sets[-1] = f"data.source={tmp_path / 'triples.npz'}"
    run = cs.train(read_settings("simclr", sets), tmp_path / "harder")
    assert run.history().records[-1]["mean_loss"] > 0


def test_texts_are_triples_too(tmp_path):
    texts = np.array([f"word {i % 3} of {i}" for i in range(12)])
    data = open_data({"texts": texts, "labels": np.arange(12) % 3})
    h = np.random.default_rng(0).normal(size=(12, 3))
    triples = mine(Embeddings(h=h), data, margin=0.0, look=11)
    save_triples(triples, tmp_path / "texts.npz")
    again = open_data(str(tmp_path / "texts.npz"))
    x1, x2, _ = view_batches(again, batch=2)[0]
    assert x1.dtype == x2[0].dtype == x2[1].dtype == torch.int64
    assert [len(x) for x in (x1, *x2)] == [2, 2, 2]


def test_pairs_of_texts_are_mined_and_trained_on(tmp_path, monkeypatch, capsys):
    """As a file of `anchor` and `positive` gives them."""
    monkeypatch.chdir(tmp_path)
    lines = [{"anchor": f"thing {at}", "positive": f"one thing {at}"} for at in range(24)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, lines)))
    data = open_data("pairs('pairs.jsonl', pictures=False)")
    rng = np.random.default_rng(0)
    h, other = (rng.normal(size=(24, 4)) for _ in range(2))
    made = mine(Embeddings(h=h, layers={"second": h + 0.1 * other}), data, margin=0.0)
    assert len(made) > 12
    assert not (made.column("negatives")[:, 0] == made.column("second_view")).any()
    for first, second in zip(made.column("texts"), made.column("second_view"), strict=True):
        assert second == f"one {first}"
    assert all(text.startswith("one thing") for text in made.column("negatives").ravel())
    save_triples(made, tmp_path / "triples.npz")
    assert main(["train", "triples.npz", "--set", "epochs=1", "views.first="]) == 0
