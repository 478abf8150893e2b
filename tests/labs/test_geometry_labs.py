"""Labs of encoder and projector: their settings at the paper's scale run; their rules can fail."""

import dataclasses

import numpy as np
import pytest
import torch

import chiaroscuro as cs
from chiaroscuro import labs
from chiaroscuro.labs.cosentino2022 import choice, projectors, strength
from chiaroscuro.labs.rusak2022 import direct, standardised
from chiaroscuro.labs.trained import scored, trained

TINY = "digits(renderings=(1, 1), test=0.99)"


def test_every_claim_of_the_list_has_a_lab():
    topics = {topic for lab in labs.all_labs() for topic in lab.topics}
    assert {f"G{i}" for i in range(1, 11)} <= topics
    assert {"C7", "C8"} <= topics


def paper_settings():
    there = dataclasses.replace(strength.PAPER, source=TINY)
    yield "strength", strength.training(there, 0.5, 0)
    there = dataclasses.replace(standardised.PAPER, source=TINY)
    for row in standardised.ROWS:
        yield f"standardised {row}", standardised.training(there, row, 0)
    there = dataclasses.replace(projectors.PAPER, source=TINY)
    wide, deep = projectors.shapes(there)
    for depth, width in (deep[0], wide[-1], deep[-1]):  # linear, widest, deepest
        yield f"projectors {depth} {width}", projectors.training(there, depth, width, 0)
    yield "choice", choice.training(choice.PAPER, TINY, 50_000, 0.5, 0)
    yield "direct", direct.training(dataclasses.replace(direct.PAPER, source=TINY), 0)


@pytest.mark.parametrize("name", [name for name, _ in paper_settings()])
def test_one_step_at_the_papers_scale(name):
    """The paper's loss, optimiser and projector, in a batch that fits a test; of its encoders one
    each, and a small one elsewhere."""
    asked = dict(paper_settings())[name]
    rusak = name.startswith(("standardised", "direct"))
    assert asked.network.encoder == f"ResNet(depth={50 if rusak else 18}, stem='small')"
    if not rusak:
        assert (asked.optimiser.name, asked.optimiser.lr, asked.epochs) == ("lars", 4.0, 500)
    network = asked.network
    if name not in ("strength", "direct"):
        network = dataclasses.replace(network, encoder="ResNet(9, 0.125, stem='small')")
    networks = cs.engine.build(network, 0).train()
    if name == "strength":
        assert (networks.encoders[0].d, networks.projectors[0].d) == (512, 128)
    move = cs.engine.optimiser(asked.optimiser, networks)
    data = cs.data.open_data(TINY).part("train")
    x1, x2 = cs.engine.Pairs.of(asked, data)(np.arange(4), 0)
    before = [p.detach().clone() for p in networks.parameters()]
    loss = asked.make_objective()(*networks(x1, x2))
    assert torch.isfinite(loss)
    loss.backward()
    move.step()
    after = list(networks.parameters())
    moved = [not a.equal(b) for a, b in zip(before, after, strict=True)]
    assert np.mean(moved) > 0.5


def test_the_papers_projectors_are_linear_and_deep():
    shapes = {(2, width) for width in projectors.PAPER.widths}
    assert len(shapes) == 3
    assert projectors.PAPER.depths[0] == 1
    assert projectors.PAPER.d_proj == 128


def test_the_best_of_several_mlps_is_no_gain():
    """MLPs of which one is better by chance and the others are not better."""

    def shape(depth, width, linear):
        size = {"depth": depth, "width": width, "linear": linear}
        return {**size, "visited": 10.0 * depth * width, "unexplained": 1 / depth}

    wide = [[shape(2, 8, 0.3), shape(2, 16, 0.35)]] * 3
    deep = [[shape(1, 16, 0.32), shape(2, 16, 0.35), shape(3, 16, 0.25)]] * 3
    found = {"widths": wide, "depths": deep, "n": 2000, "epochs": 50}
    judged = {one.id: one for one in projectors.claims(found)}
    assert judged["G8.encoder"].verdict == "fails"
    assert judged["G8.encoder"].ours["gain_of_best"] == pytest.approx([0.03] * 3)
    assert judged["G8.encoder"].ours["gain"] == pytest.approx([-0.02] * 3)
    assert judged["G8.pictures"].verdict == judged["G8.local_fit"].verdict == "holds"
    few = {one.id: one.verdict for one in projectors.claims({**found, "epochs": 3})}
    assert few["G8.encoder"] == few["G8.local_fit"] == "inconclusive"


def test_labels_are_compared_on_plain_views():
    """The nearest other row has the label: of pairs always, of a shuffled set by chance."""
    h = np.repeat(np.eye(6), 2, axis=0) + 1e-3 * np.random.default_rng(0).normal(size=(12, 6))
    labels = np.repeat(np.arange(6), 2)
    seen = cs.Embeddings(h=h, labels=labels, coarse_labels=labels // 2)
    assert strength.nearest(seen) == {"fine": 1.0, "coarse": 1.0}
    wrong = np.roll(labels, 1)
    assert strength.nearest(cs.Embeddings(h=h, labels=wrong)) == {"fine": 0.0}


def test_what_the_figure_of_strength_keeps():
    draw = np.random.default_rng(0)
    spectra = lambda: {name: draw.random(4).tolist() for name in ("h", "h1", "z")}
    numbers = dict.fromkeys(("loss", "bound", "knn", "hardest_distance", "movement"), 1.0)
    moment = lambda epoch: {
        "epoch": epoch, "nearest": {"fine": 0.1}, "weights": [2.0, 1.0], "spectra": spectra(),
        **numbers,
    }  # fmt: skip
    runs = [
        {"strength": s, "seed": 0, "moments": [moment(epoch) for epoch in (0, 1, 2)]}
        for s in (0.05, 0.5)
    ]
    result = {"runs": runs, "strengths": [0.05, 0.5], "epochs": 2}
    kept = strength.curves(result)["runs"][0]["moments"]
    assert [list(m["spectra"]) for m in kept] == [["h", "h1", "z"], ["z"], ["h", "h1", "z"]]
    assert "movement" not in kept[0]
    assert strength.figure(strength.curves(result)) is not None


# ---- the same numbers as a diagnosis ----


def test_the_numbers_of_the_labs_are_those_of_a_diagnosis(tmp_path):
    rows = 200
    for at, projector in enumerate(("depth=1", "depth=2, width=32, batch_norm=False")):
        asked = cs.engine.read_settings(
            "geometry",
            [
                *strength.QUICK.sets,
                f"network.projector=Projector(d=16, {projector}, last='none')",
                f"data.source={strength.QUICK.source}",
                *("epochs=1", "schedule.warmup=0"),
            ],
        )
        run = cs.train(asked, tmp_path / str(at))
        shown = cs.diagnose(run, rows=rows).measures
        networks = cs.engine.load_networks(run)
        seen = cs.engine.examine(run, rows)
        found = cs.diagnostics.geometry(
            seen.embeddings, networks.projectors[0], seen.second, seen.first
        )
        assert {name: shown[name] for name in found} == pytest.approx(found)
        if at == 0:
            judged = choice.unlabelled(seen, networks, asked)
            same = {"recall": "recall_1"}
            e = seen.embeddings  # of all rows there, of a batch here
            whole = cs.diagnostics.anatomy(e.z1, e.z2, cs.engine.open_run(run).contrast, rows=None)
            judged |= {name: getattr(whole, name) for name in ("gap", "effective_negatives")}
            assert {m: shown[same.get(m, m)] for m in choice.MEASURES} == pytest.approx(judged)
            moment = strength.measured(networks, asked, rows, 1)
            assert moment["ranks"]["h"] == shown["numerical_rank"]
            assert moment["effective"]["z"] == pytest.approx(shown["z_effective_rank"])


# ---- the choice of a strength ----


def planted(good):
    """Results in which `recall` on large views is largest at the best strength if `good`."""
    draw = np.random.default_rng(0)
    strengths = [0.05, 0.25, 0.5]
    sets = {}
    for name in ("a", "b", "c", "d"):
        best = draw.integers(0, 2)
        rows = []
        for at in range(3):
            numbers = {m: float(draw.normal()) for m in choice.MEASURES}
            other = dict(numbers, recall=float(at == best) if good else float(at == 2))
            for measure in set(choice.MEASURES) - {"recall"}:
                other[measure] = numbers[measure] = 0.0  # the first, whatever is best
            knn = 0.5 + 0.1 * (at == best) - 0.1 * (at == 2)
            rows.append([{"own": numbers, "large": other, "knn": knn, "linear": knn}] * 3)
        sets[name] = rows
    return {
        "strengths": strengths,
        "default": 0.5,
        "n_seeds": 3,
        "propose": ["a", "b"],
        "held_out": ["c", "d"],
        "sets": sets,
    }


def test_a_rule_that_finds_the_best_is_proposed():
    result = planted(True)
    score, rule = choice.proposed(result)[0]
    assert score == 1
    recovered, shortfall = choice.outcome(result, ["c", "d"], ("large", "recall", 1.0))
    assert recovered == 1
    assert set(shortfall.values()) == {0}
    assert choice.said(rule).startswith(("largest", "smallest"))


def test_a_rule_that_keeps_the_default_recovers_nothing():
    result = planted(False)
    recovered, shortfall = choice.outcome(result, ["c", "d"], ("large", "recall", 1.0))
    assert recovered == 0
    assert max(shortfall.values()) == pytest.approx(0.2)


def test_where_the_default_is_best_another_choice_recovers_nothing():
    result = planted(True)
    for name, rows in result["sets"].items():
        result["sets"][name] = [
            [dict(one, knn=0.5 + 0.1 * (at == 2)) for one in row] for at, row in enumerate(rows)
        ]
    assert choice.possible(result, ["c", "d"]) == 0
    recovered, shortfall = choice.outcome(result, ["c", "d"], ("large", "recall", 1.0))
    assert recovered < 0.8
    assert min(shortfall.values()) == pytest.approx(0.1)
    judged = choice.claims({**result, "propose": ["a"], "held_out": ["a", "b", "c", "d"]})
    assert judged[0].verdict == "inconclusive"
    assert judged[0].ours["possible"] == 0
    assert judged[1].verdict == "fails"


def test_labels_of_held_out_sets_do_not_choose_the_rule():
    result = planted(True)
    rule = choice.proposed(result)[0]
    for name in result["held_out"]:
        for row in result["sets"][name]:
            row[:] = [dict(one, knn=1 - one["knn"]) for one in row]
    assert choice.proposed(result)[0] == rule


def test_no_data_is_said():
    result = planted(True) | {"held_out": []}
    assert {claim.verdict for claim in choice.claims(result)} == {"not_run"}


def test_half_of_omniglot_needs_its_file(tmp_path, monkeypatch):
    monkeypatch.setenv("CHIARO_DATA", str(tmp_path))
    assert choice.opened("omniglot even") is None
    alphabet = np.repeat(["x", "y", "w"], 8)
    np.savez(
        tmp_path / "omniglot_small.npz",
        images=np.ones((24, 9, 9), np.uint8),
        labels=np.repeat(np.arange(6), 4),
        alphabet=alphabet,
        drawer=np.tile(np.arange(1, 5), 6),
    )
    data = choice.opened("omniglot even")
    assert len(data) == 16
    assert sorted(set(data.labels.tolist())) == [0, 1, 2, 3]
    assert data.split.sum() == 4
    assert data[[0]]["images"].max() == 255
    assert len(choice.opened("omniglot odd")) == 8


# ---- DirectCLR ----


def test_weights_without_a_gradient_fall_by_the_exponent():
    o = cs.engine.read_settings("directclr", ["optimiser={name='sgd', lr=0.1, weight_decay=0.1}"])
    o = dataclasses.replace(o, epochs=2)
    w = torch.nn.Parameter(torch.ones(2, 2))
    move = cs.engine.optimiser(o.optimiser, torch.nn.ParameterList([w]))
    for step in range(400):
        w.grad = torch.zeros_like(w)
        for group in move.param_groups:
            group["lr"] = o.optimiser.lr * o.schedule.factor(step, 400, 200)
        move.step()
    left = float(-torch.log(w.detach()[0, 0].abs()))
    assert left == pytest.approx(direct.exponent(o, 400), rel=1e-4)


# ---- trainings ----


def test_looks_on_the_way():
    small = "network.encoder='ResNet(9, 0.125, stem=\"strided\")'", "epochs=2", "batch=8"
    settings = cs.engine.read_settings("digits", [*small, f"data.source={TINY}"])
    networks, seen = trained(settings, lambda n, epoch: (epoch, n.training), [0, 2])
    assert seen == [(0, False), (2, False)]
    assert not networks.training


def test_scores_are_those_of_evaluate():
    draw = np.random.default_rng(0)
    h, y = draw.normal(size=(90, 5)), draw.integers(0, 3, 90)
    both = cs.Embeddings(h=h, z=h[:, :2], labels=y, split=np.repeat([0, 1, 0], 30))
    found = cs.diagnostics.evaluate(both, probes=["ridge"])["results"]
    assert scored(both)["projector"]["knn_20"] == found["projector"]["knn_20"]
    assert scored(both)["encoder"]["linear"] == found["encoder"]["linear"]
