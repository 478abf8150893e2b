"""The labs on pictures: every row at the paper's scale takes a step; what is judged by what."""

import dataclasses

import numpy as np
import pytest
import torch

import chiaroscuro as cs
from chiaroscuro.labs.calder2025 import tsne
from chiaroscuro.labs.tan2024 import pictures, random_search, rewrites

PAPER = pictures.PAPER


def values(row):
    return {"optimiser.lr": 0.3, **pictures.one_tau(PAPER, row, 0.5)}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Eight pictures, four on each side."""
    path = tmp_path_factory.mktemp("pictures") / "eight.npz"
    rng = np.random.Generator(np.random.Philox(0))
    images = rng.integers(0, 256, (8, 32, 32, 3), dtype=np.uint8)
    np.savez(path, images=images, labels=np.arange(8) % 2)
    return f"arrays('{path}', test=0.5)"


def test_a_paper_row_takes_one_whole_step(source, tmp_path):
    table = pictures.table_of(PAPER, "table1", source, "concatenation", 0, 1)
    settings = pictures.filled({**table, "batch": 4}, values("concatenation"))
    assert settings.network.encoder == "ResNet(depth=50, stem='small')"
    assert settings.network.projector == "Projector(d=256, width=2048, last='unit')"
    assert (settings.optimiser.name, settings.optimiser.weight_decay) == ("lars", 1e-6)
    run = cs.train(settings, tmp_path)
    last = run.history().records[-1]
    assert last["step"] == 1
    assert np.isfinite(last["mean_loss"])


@pytest.mark.parametrize(
    ("table", "row"),
    [
        *(("table1", row) for row in pictures.ROWS),
        *(("table4", row) for row in ("SimCLR", "Laplacian", "simple sum")),
    ],
)
def test_every_paper_row_has_its_loss_and_gradient(table, row):
    moco = table == "table4"
    settings = pictures.filled(
        pictures.table_of(PAPER, table, "cifar10", row, 0, PAPER.epochs),
        values(row) if not moco else pictures.one_tau(PAPER, row, PAPER.moco_tau),
    )
    assert settings.epochs == 400
    assert settings.batch == 256
    assert settings.network.encoder.startswith(f"ResNet(depth={18 if moco else 50}")
    d_in = 512 if moco else 2048
    text = settings.network.projector.replace("Projector(", f"Projector(d_in={d_in}, ", 1)
    projector = cs.spec.parse(text, {"Projector": cs.models.Projector})
    assert projector.d == (256 if row == "concatenation" else 128)
    h = torch.randn(2, 8, d_in, generator=torch.Generator().manual_seed(0))
    z1, z2 = projector(h[0]), projector(h[1])
    assert torch.allclose(z1.norm(dim=1), torch.ones(8))
    objective = settings.make_objective()
    if moco:
        assert settings.network.queue > 0
        queue = torch.nn.functional.normalize(torch.randn(32, projector.d), dim=1)
        loss = objective(z1, z2, queue=queue)
    else:
        loss = objective(z1, z2)
    loss.backward()
    assert float(loss.detach()) > 0
    assert all(torch.isfinite(p.grad).all() for p in projector.parameters())


def test_every_row_has_the_same_budget():
    counted = []

    def keep(name, piece):
        counted.append(name)
        return 0.5

    laptop = dataclasses.replace(pictures.LAPTOP, table1=((pictures.DIGITS, pictures.ROWS),))
    laptop = dataclasses.replace(laptop, table4=())
    result = pictures.run(laptop, keep)
    rows = result["tables"]["table1"][pictures.DIGITS]
    for row in pictures.ROWS:
        assert sum(f" {row} tau " in name for name in counted) == len(laptop.taus)
        assert sum(f" {row} seed " in name for name in counted) == len(laptop.seeds) == 3
        assert len(rows[row]["accuracy"]) == 3
    assert len(counted) == len(set(counted)) == 5 * 7


def test_orderings_are_told_apart():
    def result(sums, epochs=200):
        rows = {
            row: {"values": {}, "tries": [], "accuracy": [0.5 + gap + s for s in (0, 0.01, 0.02)]}
            for row, gap in zip(pictures.ROWS, (0.0, 0.01, 0.02, sums, 0.02), strict=True)
        }
        tables = {"table1": {"cifar10_12k": rows, "cifar100_12k": rows}, "table4": {}}
        base = {"gaussian": {"value_error": 0.0, "gradient_error": 0.0}, "differences": 0}
        around = {"missing": {}, "taus": [], "n_seeds": 3, "n_pictures": 10_000, "epochs": epochs}
        return {
            one.id: one.verdict for one in pictures.claims({**base, **around, "tables": tables})
        }

    good, bad = result(0.05), result(-0.03)
    assert [good[f"S6.{name}"] for name in ("cifar10", "cifar100", "best")] == ["holds"] * 3
    assert [bad[f"S6.{name}"] for name in ("cifar10", "cifar100", "best")] == ["fails"] * 3
    assert result(0.02)["S6.best"] == "fails"  # as good as two others, and the paper says better
    assert result(-0.03, epochs=7)["S6.cifar10"] == "inconclusive"
    assert good["S6.tiny"] == "not_run"
    assert good["S6.moco"] == good["S6.moco100"] == "not_run"


def test_few_seeds_decide_nothing_but_large_differences():
    rows = lambda *gap: {
        "SimCLR": {"accuracy": [0.5, 0.5, 0.5]},
        "simple sum": {"accuracy": [0.5 + x for x in gap]},
    }
    effects = {"simple sum": 0.041}
    unsure = pictures.above(rows(0.06, -0.02, 0.03), effects)
    assert (unsure["decided"], unsure["confirmed"], unsure["contradicted"]) == (0, 0, 0)
    assert unsure["seeds_needed"] == [pictures.needed(np.std([0.06, -0.02, 0.03], ddof=1), 0.041)]
    below = pictures.above(rows(0.001, -0.001, 0.0), effects)
    assert (below["decided"], below["contradicted"]) == (1, 1)
    clear = pictures.above(rows(0.04, 0.041, 0.042), effects)
    assert (clear["decided"], clear["confirmed"]) == (1, 1)


def test_purity_of_known_points():
    labels = np.repeat([0, 1], 20)
    apart = np.stack([labels * 100.0 + np.arange(40) % 20, np.zeros(40)], axis=1)
    assert tsne.purities(apart, labels, 5).mean() == 1.0
    rng = np.random.Generator(np.random.Philox(0))
    mixed = tsne.purities(rng.normal(size=(2000, 2)), np.arange(2000) % 10, 10).mean()
    assert abs(mixed - 0.1) < 0.02
    same = np.zeros((30, 2))  # all in one place: a point is not its own neighbour
    assert tsne.purities(same, np.arange(30), 5).mean() == 0.0


def test_pictures_that_are_missing_are_named():
    settings = dataclasses.replace(tsne.QUICK, handwriting=("nowhere.npz",), pictures="nowhere.npz")
    judged = tsne.claims(tsne.run(settings))
    assert [one.verdict for one in judged] == ["not_run"] * 4
    assert all("nowhere.npz" in one.ours["missing"] for one in judged)


def test_rank_of_the_right_picture():
    images = torch.eye(12)
    found = rewrites.ranks(images, images, np.arange(12))
    assert found == {"recall_1": 1.0, "recall_10": 1.0}
    wrong = rewrites.ranks(torch.eye(12), torch.eye(12), np.roll(np.arange(12), 1))
    assert wrong["recall_1"] == 0.0


def test_rewrites_are_judged_by_their_gain():
    def row(original, reworded, steps=495):
        recall = {"recall_1": original / 2, "recall_10": original}
        return {
            "steps": steps,
            "original": dict.fromkeys(rewrites.WAYS, recall),
            "reworded": {"recall_1": 0.0, "recall_10": reworded},
        }

    runs = {"CLIP": [row(0.3, 0.1)] * 3, "LaCLIP": [row(0.2, 0.2)] * 3}
    judged = rewrites.claims({"missing": "", "n_seeds": 3, "runs": runs})
    assert [one.verdict for one in judged] == ["fails", "holds"]
    assert judged[0].ours["extra_steps"] == 0
    short = {name: [row(0.3, 0.1, steps=11)] * 3 for name in runs}
    judged = rewrites.claims({"missing": "", "n_seeds": 3, "runs": short})
    assert {one.verdict for one in judged} == {"inconclusive"}


def test_ranks_and_gaps_of_a_search():
    assert random_search.ranked([1, 2, 3], [2, 4, 6]) == pytest.approx(1)
    assert random_search.ranked([1, 2, 3], [6, 4, 2]) == pytest.approx(-1)
    assert random_search.ranked([1, 1, 1], [1, 2, 3]) == 0
    assert random_search.distance(np.linspace(0, 1, 1000)) < 0.1
    assert random_search.distance(np.linspace(0, 1, 1000) ** 2) > 5
    full = [
        {"curve": [[1, 0.2], [2, v]], "test": t} for v, t in ((0.3, 0.3), (0.5, 0.4), (0.4, 0.2))
    ]
    half = {
        "best": 2,
        "trials": [{"curve": [[1, 0.2]]}, {"curve": [[1, 0.2]]}, {"curve": [[2, 0.4]]}],
    }
    found = random_search.compared(full, half)
    assert found["share"] == pytest.approx(4 / 6)
    assert found["regret"] == pytest.approx(0.1)
    assert found["gain"] == pytest.approx(0.1)
