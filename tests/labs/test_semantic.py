"""What the labs of semantic2025 are built of, against simpler forms of the same."""

import dataclasses
import gzip
import itertools

import numpy as np
import pytest
import torch

import chiaroscuro as cs
from chiaroscuro.labs.semantic2025 import (
    ablations,
    alignment,
    equal_rows,
    forgetting,
    modular,
    words,
)
from chiaroscuro.labs.semantic2025._modular import (
    CLASSES,
    Learner,
    N,
    Solver,
    contrasted,
    downstream,
    floor,
    training_pairs,
    within,
)
from chiaroscuro.labs.semantic2025._stack import MANY, Stack


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of torch
@pytest.mark.parametrize("steps", [1, MANY])
def test_a_stack_is_its_models(steps):
    torch.manual_seed(0)
    depth = 2 if steps == 1 else 1
    models = [cs.models.SequenceTransformer(7, 3, d=8, depth=depth, heads=2) for _ in range(3)]
    heads = [torch.nn.Linear(8, 5) for _ in range(3)]
    for part in itertools.chain(*(model.parameters() for model in models)):
        torch.nn.init.normal_(part, std=0.5)
    stack = Stack(models, heads)
    tokens = torch.randint(7, (3, 4, 3))
    expected = torch.stack(
        [head(model(x)) for model, head, x in zip(models, heads, tokens, strict=True)]
    )
    encode = stack.called(steps)
    torch.testing.assert_close(encode(tokens), expected)
    encode(tokens).square().sum().backward()
    expected.square().sum().backward()
    for i, model in enumerate(models):
        for name, value in model.named_parameters():
            torch.testing.assert_close(stack[name].grad[i], value.grad, atol=1e-4, rtol=1e-4)


def test_learners_in_a_stack_do_not_see_each_other():
    tasks = [within(cs.data.contrastive_mod_add(k=k), 0) for k in (8, 16)]
    learner = Learner(width=8, depth=1)
    both = contrasted(tasks, [3, 3], learner, steps=3, batch=8, looks=1)
    # draws are shared over a stack, so the first learner alone sees other draws; starts do not move
    alone = contrasted(tasks[:1], [3], learner, steps=0, batch=8, looks=1)
    assert both[0]["equivalent"][0] == alone[0]["equivalent"][0]
    assert both[0]["h"] != both[1]["h"]


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_each_learner_of_a_stack_decays_in_its_own_way(kind):
    torch.manual_seed(0)
    other = Learner(lr=0.1, weight_decay=0.7, positions=False)
    learners = [Learner(lr=0.1, weight_decay=0.3, optimiser=kind), other]
    start, target = torch.randn(2, 4, 3), torch.randn(2, 4, 3)
    stacked = start.clone().requires_grad_()
    solver = Solver(learners, [stacked])
    alone = start[0].clone().requires_grad_()
    classes = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    plain = classes[kind]([alone], lr=0.1, weight_decay=0.3)
    for _ in range(20):
        solver.step((stacked - target).square().sum())
        plain.zero_grad()
        (alone - target[0]).square().sum().backward()
        plain.step()
    torch.testing.assert_close(stacked[0].detach(), alone.detach())
    assert not torch.equal(stacked[1], start[1])


def test_learners_without_positions_do_not_train_them():
    learners = [Learner(lr=0.1), Learner(lr=0.1, positions=False)]
    positions = torch.zeros(2, 3, 4, requires_grad=True)
    solver = Solver(learners, [positions], frozen=[positions])
    for _ in range(3):
        solver.step((positions - 1).square().sum())
    assert (positions[0] > 0).all()
    assert (positions[1] == 0).all()


def test_learners_of_one_stack_share_a_learning_rate():
    with pytest.raises(ValueError, match="share a learning rate, got"):
        Solver([Learner(lr=0.1), Learner(lr=0.2)], [torch.zeros(2, 1, requires_grad=True)])


def test_the_loss_of_a_stack_is_the_librarys():
    task = within(cs.data.contrastive_mod_add(), 1)
    found = contrasted([task], [1], Learner(width=8, depth=1, lr=0.0), steps=0, batch=16, looks=1)
    assert found[0]["loss"][0] == pytest.approx(np.log(16), rel=0.5)
    h, z = torch.randn(2, 6, 4, dtype=torch.float64)
    S = h @ z.T
    dense = (S.logsumexp(1) - S.diagonal()).mean()
    assert float(dense) == pytest.approx(float(equal_rows.objective()(h, z)))


def test_training_sums_are_the_same_for_both_tasks():
    kept = training_pairs(4)
    assert kept.sum() == 205
    task = within(cs.data.contrastive_mod_add(), 4)
    for context, symbol in zip(*np.nonzero(task.law), strict=True):
        a, b, c = (symbol if t == N else t for t in task.contexts[context])
        assert kept[a, b]
        assert (a + b) % 8 == c
    assert (task.law > 0).sum() == 2 * 205


def test_the_floor_is_the_mean_log_of_what_fits():
    task = cs.data.contrastive_mod_add()
    rng = np.random.default_rng(0)
    fits = 1 + rng.binomial(31, 1 / 8, 200_000)
    assert floor(task, 32) == pytest.approx(np.log(fits).mean(), abs=0.015)
    assert floor(cs.data.contrastive_mod_add(noise=1.0), 32) == pytest.approx(np.log(32))


def test_downstream_learns_sums_and_counts_the_area():
    tables = [np.eye(8)[CLASSES].tolist()] * 2
    found = downstream(tables, [0, 1], Learner(lr=5e-3), steps=150, batch=64, looks=3)
    assert all(row["accuracy"][-1] > 0.3 for row in found)
    assert found[0]["area"] == pytest.approx(np.mean(found[0]["accuracy"]), abs=1e-5)
    assert found[0]["step"] == [0, 50, 100, 150]


def test_the_population_loss_is_a_plain_sum():
    rng = np.random.default_rng(0)
    p = torch.from_numpy(rng.dirichlet(np.ones(6)).reshape(3, 2))
    S = torch.from_numpy(rng.normal(size=(3, 2)))
    total = 0.0
    for c, u, other in itertools.product(range(3), range(2), range(3)):
        weight = p[c, u] * p[other].sum()
        total += float(weight * (torch.logaddexp(S[c, u], S[other, u]) - S[c, u]))
    assert float(equal_rows.expected(S, p)) == pytest.approx(total)


def test_bands_are_counted():
    rng = np.random.default_rng(0)
    three = np.concatenate([rng.normal(m, 0.02, 40) for m in (1, 2, 3)])
    assert ablations.bands(three) == 3
    assert ablations.bands(rng.normal(1, 0.01, 30) + np.repeat([0, 5], 15)) == 2
    assert ablations.bands(np.linspace(0, 1, 100)) == 6
    turn = np.tile([1, 2, 3, 4], 10)
    assert ablations.explained(turn * 1.0, turn) == pytest.approx(1)


def test_held_out_sets_are_nine_of_eighteen_and_all_different():
    sets = alignment.data_sets()
    assert sum(held for _, held in sets.values()) == 9
    assert len(sets) == 18
    laws = {task.given_symbol().tobytes() + bytes(task.n_contexts) for task, _ in sets.values()}
    assert len(laws) == 18
    order = alignment.moved(6, 1)
    assert sorted(order) == list(range(N))
    assert (order != np.arange(N)).sum() == 6


def test_one_symbol_alone_is_misaligned_and_stays_as_frequent():
    plain = within(cs.data.contrastive_mod_add(), seed=3)
    task = ablations.misaligned(plain, [3], 0.9, seed=3)
    assert task.law.sum() == pytest.approx(1)
    changed = np.abs(task.given_symbol() - plain.given_symbol()).max(axis=1) > 1e-12
    assert np.flatnonzero(changed).tolist() == [3]
    assert task.given_symbol()[3].max() == pytest.approx(0.9)
    rest = np.sort(task.given_symbol()[3])[:-1]
    assert rest[rest > 0] == pytest.approx(0.1 / (rest > 0).sum())
    assert task.pairs().sum(axis=0) == pytest.approx(plain.pairs().sum(axis=0))
    assert ((task.pairs() > 0) == (plain.pairs() > 0)).all()  # no sum that is held out


def test_one_misaligned_symbol_is_judged_later_or_not():
    def row(curve, loss=1.5):
        h = np.random.default_rng(0).normal(size=(N, 8)).tolist()
        same = {"nearest": curve, "equivalent": curve, "other": curve}
        return {"step": [0, 1, 2], "ratio": curve, "loss": [loss] * 3, "h": h, **same}

    def verdict(curve, area):
        names = ("unchanged", "both", "no decay", "low start", "misaligned", "dimension")
        early = [row([1, 0.3 + s, 0.1]) for s in (0, 0.01, 0.02)]
        late = [row([1, curve + s, 0.1]) for s in (0, 0.011, 0.02)]
        learners = {**dict.fromkeys(names, early), "one symbol": late}
        rows = [{"step": [0], "accuracy": [0], "area": x} for x in (0.5, 0.51, 0.52)]
        less = [{"step": [0], "accuracy": [0], "area": x} for x in (area, area, area)]
        after = dict.fromkeys([*names, "fresh 8", "fresh 16"], rows)
        after |= {f"{name}, shuffled": rows for name in learners} | {"one symbol": less}
        result = {"lr_steps": 6.4, "n_seeds": 3, "d_large": 16, "learners": learners}
        judged = ablations.claims({**result, "downstream": after})
        return {claim.id: claim.verdict for claim in judged}["E3.one_later"]

    assert verdict(0.8, 0.2) == "holds"
    assert verdict(0.1, 0.2) == "fails"
    assert verdict(0.3, 0.2) == "inconclusive"


def test_precision_and_gap_of_planted_distances():
    away = 1.0 - (alignment.CLASSES[:, None] == alignment.CLASSES)
    assert alignment.precision_and_gap(away) == pytest.approx(1)
    assert alignment.precision_and_gap(1 - away) < 0
    assert alignment.precision_and_gap(np.ones((N, N))) == pytest.approx(0)


@pytest.mark.parametrize(
    ("slope", "noise", "verdict"), [(1, 0.01, "holds"), (-1, 0.01, "fails"), (0, 1, "inconclusive")]
)
def test_alignment_predicts_or_does_not(slope, noise, verdict):
    rng = np.random.default_rng(0)
    x = np.tile(np.linspace(0, 1, 9), 2)
    slopes = np.where(np.arange(18) < 9, slope**2, slope)  # the half that chooses goes up
    gain = (slopes * x)[:, None] + noise * rng.normal(size=(18, 3))
    estimates = [{**dict.fromkeys(alignment.STATISTICS, v), "beyond_floor": 0.0} for v in x]
    result = {
        "lr_steps": 6.4, "held_out": [False] * 9 + [True] * 9, "estimates": estimates,
        "gain": gain.tolist(), "exact": alignment.decided(),
        "equivalence": {"missed": 0, "found_wrongly": 0, "unbiased_equivalent": 0},
    }  # fmt: skip
    assert alignment.claims(result)[-1].verdict == verdict


def test_the_nearest_word_of_a_twin():
    h = np.array([[0.0, 0], [0.1, 0], [5, 5], [5, 6], [9, 9.0]])
    assert words.twins(h, np.array([[0, 1], [2, 3]])) == 1
    assert words.twins(h, np.array([[0, 2]])) == 0


def test_a_threshold_is_found_and_no_threshold_is_told():
    rows = [{"decay": d, "start": s, "appears": d - np.log(s) > 1.7}
            for d in (0.0, 1.0, 2.0, 3.0) for s in (0.1, 1.0)]  # fmt: skip
    cut, right = forgetting.divided(rows, forgetting.forgotten)
    assert right == 1
    assert 1 < cut < 2
    assert forgetting.divided(rows, lambda row: row["decay"])[1] < 1
    assert forgetting.divided([dict(row, appears=False) for row in rows], forgetting.forgotten) == (
        pytest.approx(max(map(forgetting.forgotten, rows)) + 1),
        1,
    )


def test_decay_alone_takes_unused_weights_off():
    settings = dataclasses.replace(forgetting.QUICK, steps=40)
    kept, gone = (
        forgetting.unused(settings, forgetting.At(forget, 1.0, 0, 8e-3)) for forget in (0.0, 6.0)
    )
    assert kept["share"] > 0.3
    assert not kept["appears"]
    assert gone["share"] < kept["share"] / 4
    assert gone["appears"]


def test_coupled_decay_does_not_ask_for_the_decay():
    steps = [forgetting.coupled(1e-2, d, 0.3, 0)["steps"] for d in (1e-3, 1e-1)]
    assert abs(steps[0] - steps[1]) <= 1
    assert 10 < steps[0] < 60


def planted_law(number, aside):
    """Runs in which the effect appears where a number says so; another for the one kept aside."""

    def rows(of):
        places = itertools.product((0.0, 1.0, 2.5, 6.0), (2.0, 0.6, 0.2, 0.04), range(3))
        return [
            {"decay": d, "start": s, "seed": seed, "lr": 1e-3, "overlap": s, "way": 1.0,
             "appears": bool(of(d, s))}
            for d, s, seed in places
        ]  # fmt: skip

    result = {name: rows(number) for name in forgetting.NAMES} | {"unused": rows(aside)}
    places = itertools.product((0.0, 0.5, 1.0, 2.0, 3.0, 4.0), (3.0, 1.7, 1.0, 0.5, 0.3, 0.1))
    result["images"] = [
        {"decay": d, "start": s, "overlap": s, "appears": bool(aside(d, s))} for d, s in places
    ]
    gone = [forgetting.coupled(1e-3, d, 0.3, seed) for d in (1e-3, 1e-2) for seed in range(6)]
    result |= {"n_seeds": 3, "coupled": gone, "coupled symbols": [
        {"lr": lr, "wd": wd, "seed": seed, "appears": (lr, wd) == (1e-4, 1e-2), "way": 1.0}
        for lr in (1e-4, 1e-3) for wd in (1e-3, 1e-2) for seed in range(6)
    ]}  # fmt: skip
    return {claim.id: claim.verdict for claim in forgetting.claims(result)}


def test_the_law_of_forgetting_can_fail():
    law = lambda d, s: d - np.log(s) > 1.7
    start, other = (lambda d, s: s < 0.5), (lambda d, s: d - np.log(s) > 8)
    found = planted_law(law, law)
    assert found["E2.forgetting"] == "holds"
    assert found["E2.kept_aside"] == found["E2.kept_images"] == "holds"
    assert found["E2.coupled_first"] == "fails"
    assert found["E2.coupled_law"] == found["E2.coupled_rates"] == "holds"
    assert planted_law(start, law)["E2.forgetting"] == "fails"  # the start alone tells it better
    assert planted_law(law, other)["E2.kept_aside"] == "fails"
    assert planted_law(law, other)["E2.kept_images"] == "fails"


def test_cells_are_counted():
    row = {"decay": 0.0, "start": 1.0, "seed": 0}
    rows = [
        dict(row, decay=float(d), seed=seed, appears=d > 1 or (d == 1 and seed == 0))
        for d in range(4) for seed in range(3)
    ]  # fmt: skip
    found = forgetting.by_cell(rows, 0.5)
    assert (found["right"], found["n_cells"], found["larger_class"]) == (3, 4, 0.5)
    assert found["agreeing"] == 0.75
    assert found["low"] == pytest.approx(0.1941, abs=1e-4)  # of 3 in 4, by the beta law
    assert not found["decided"]


def test_the_projector_behind_images_forgets():
    kept, gone = (forgetting.images(forgetting.QUICK, forget, 3.0, 0) for forget in (0.0, 20.0))
    assert kept["overlap"] > 0.9 > 0.5 > gone["overlap"]
    assert 0.9 < kept["kept"] < 1.1
    assert not kept["appears"]


def test_medians_judge_coupled_decay():
    row = {"loss": [3.4, 3.46], "ratio": [1.0, 1.0], "nearest": [0, 0.0], "equivalent": [4, 0.01]}
    row["other"] = [4, 0.01]
    result = {"learners": {"coupled": [row]}, "chance": np.log(32), "floor": [1.4], "lr_steps": 6.4}
    found = modular.judged(result, "coupled")
    assert found["share_of_way"] < 0.01
    assert found["equivalent_shrinks_to"] == pytest.approx(0.0025)
    assert not cs.labs.satisfied(modular.MERGED, found)


# ---- words, on a text of our own ----

NOUNS = [f"{a}{b}" for a in "bcdfghjklm" for b in ("an", "et", "ip", "og")]
VERBS = [f"{a}{b}ed" for a in "bcdfghjklm" for b in ("ar", "ol")]


def small(place):
    """Sentences `the NOUN VERB the NOUN`, pairs of synonyms among neighbours, and judgements."""
    rng = np.random.default_rng(0)

    def pick(listed):  # words of the second half are twice as frequent
        return rng.choice(listed, p=np.repeat([1, 2], len(listed) // 2) / (1.5 * len(listed)))

    lines = [f"The {pick(NOUNS)} {pick(VERBS)} the {pick(NOUNS)}." for _ in range(1500)]
    (place / words.TEXT).write_bytes(gzip.compress("\n".join(lines).encode()))
    rows = ["word1\tword2\tpos\tsense_rank1\tsense_rank2"]
    for part, listed in (("n", NOUNS), ("v", VERBS)):
        rows += [f"{a}\t{b}\t{part}\t1\t1" for a, b in itertools.pairwise(listed)]
    (place / words.PAIRS).write_bytes(gzip.compress("\n".join(rows).encode()))
    judged = [f"{a}\t{b}\t{i % 7}" for i, (a, b) in enumerate(itertools.pairwise(NOUNS))]
    (place / words.JUDGED).write_text("\n".join(["word1\tword2\tscore", *judged]))


def test_triples_are_matched_and_disjoint(tmp_path):
    small(tmp_path)
    corpus = cs.data.read_corpus(tmp_path / words.TEXT, least=1)
    found = words.triples(corpus, 5, 8, 0, tmp_path)
    used = [*found["words"], *itertools.chain(*found["natural"], *found["unrelated"])]
    assert len(found["natural"]) == 5
    assert len(set(used)) == len(used) == 25
    listed = cs.data.read_synonyms(tmp_path / words.PAIRS)
    related = {frozenset((one.first, one.second)) for one in listed}
    for pair, other in zip(found["natural"], found["unrelated"], strict=True):
        assert frozenset(pair) in related
        assert frozenset(other) not in related
        assert (pair[0] in NOUNS) == (other[0] in NOUNS) == (other[1] in NOUNS)


def test_the_lab_of_words_runs_where_its_data_are(tmp_path, monkeypatch):
    small(tmp_path)
    monkeypatch.setenv("CHIARO_DATA", str(tmp_path))
    settings = dataclasses.replace(words.QUICK, n_words=5, steps=3)
    result = words.run(settings)
    judged = words.claims(result)
    named = {claim.id: claim.verdict for claim in judged}
    people = "not_run" if result["word2vec"] == [None] else "inconclusive"
    assert named.pop("E4.simlex") == people  # without gensim nothing stands beside
    assert set(named.values()) == {"inconclusive"}
    assert words.figure(result) is not None
    monkeypatch.delenv("CHIARO_DATA")
    missing = words.run(settings)
    assert {claim.verdict for claim in words.claims(missing)} == {"not_run"}
    assert words.TEXT in words.claims(missing)[0].ours["missing"]


@pytest.mark.extra("word2vec")
def test_word2vec_is_trained_on_the_same_text(tmp_path):
    small(tmp_path)
    settings = dataclasses.replace(words.QUICK, n_words=5, d=8)
    found = words.word2vec(settings, 0, tmp_path, seconds=0.0)
    assert found["epochs"] == 1
    lengths = [x for kind in found["distances"].values() for x in kind]
    assert len(lengths) > 0
    assert min(lengths) > 0


def test_an_estimator_that_finds_no_equivalence_fails(monkeypatch):
    """Of 120 pairs 8 are equivalent: to miss them all is few mistakes, and no success."""
    assert alignment.EQUIVALENCE.judge(**alignment.meanings(alignment.QUICK)).verdict == "holds"
    real = cs.diagnostics.equivalence

    def blind(table):
        return dataclasses.replace(real(table), same=np.eye(16, dtype=bool))

    monkeypatch.setattr(cs.diagnostics, "equivalence", blind)
    assert alignment.EQUIVALENCE.judge(**alignment.meanings(alignment.QUICK)).verdict == "fails"
