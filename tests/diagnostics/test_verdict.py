"""The verdict never contradicts the numbers, and what diagnoses once said wrongly."""

import dataclasses
import math

import numpy as np
import pytest

import chiaroscuro as cs
from chiaroscuro.diagnostics import Context, Facts, diagnose, findings
from chiaroscuro.diagnostics.advice import Finding, graded
from chiaroscuro.diagnostics.advice.notation import (
    projector_that,
    read_call,
    scaled_views,
    with_temperature,
)
from chiaroscuro.diagnostics.assembly.cures import Pairs, Rows, paired
from chiaroscuro.diagnostics.assembly.signs import kind_of
from chiaroscuro.diagnostics.assembly.verdict import STATES
from chiaroscuro.engine import read_settings

N, D, CLASSES = 300, 16, 5


def rows(seed=0, spread=1.0):
    draw = np.random.default_rng(seed)
    y = draw.integers(0, CLASSES, N)
    return 2 * draw.normal(size=(CLASSES, D))[y] + spread * draw.normal(size=(N, D)), y


def grave(found):
    return [one.name for one in found.findings if one.severity != "note"]


def finding(found, name):
    return next(one for one in found.findings if one.name == name)


# ---- three states ----


def test_a_run_at_chance_is_never_well():
    """Neighbours at chance, raw input at a third, the untrained network at a quarter."""
    draw = np.random.default_rng(0)
    y = draw.integers(0, 10, 600)
    centres = draw.normal(size=(10, 24))
    layers = {
        "input": 0.55 * centres[y] + draw.normal(size=(600, 24)),
        "untrained": 0.42 * centres[y] + draw.normal(size=(600, 24)),
    }
    h = draw.normal(size=(600, 32))
    history = [{"loss": 5.4 - 0.001 * k, "step": 10 * k} for k in range(60)]
    found = diagnose({"h": h, "labels": y, "layers": layers}, Context(history=history))
    assert abs(found.measures["knn_accuracy"] - 0.1) < 0.05
    assert found.measures["gain_over_untrained"] < -0.05
    assert found.state == "something is wrong"
    assert found.findings[0].name == "at_chance"
    assert found.findings[0].severity == "critical"
    assert found.findings[0].p > 1e-3
    assert f"{found.measures['knn_accuracy']:.1%}" in found.verdict
    # what the other two would say is said as a consequence, with its interval
    below = [finding(found, name) for name in ("below_raw_input", "below_untrained")]
    assert all("95 % interval" in one.evidence for one in below)
    alone = findings(Facts({k: v for k, v in found.measures.items() if k != "knn_chance"}))
    assert {"below_raw_input", "below_untrained"} <= {
        one.name for one in alone if one.severity == "warning"
    }


def test_the_states_are_three():
    h, y = rows()
    assert diagnose(h).state == "cannot judge"
    assert diagnose(h).verdict.startswith("Cannot judge without labels or two views")
    well = diagnose({"h": h, "labels": y})
    assert well.state == "nothing found"
    assert set(well.checks) >= {"at_chance", "label_noise", "zero_rows", "common_offset"}
    assert "mispaired_views" not in well.checks
    assert diagnose({"h": h, "labels": y[::-1].copy()}).state == "something is wrong"
    assert diagnose(h[:20]).state == "cannot judge"
    assert STATES == ("something is wrong", "nothing found", "cannot judge")
    assert well.json()["state"] == "nothing found"
    for one in (diagnose(h), well):
        assert "ealthy" not in one.verdict


def test_what_is_no_contrastive_embedding_is_not_judged_as_one():
    draw = np.random.default_rng(0)
    y = draw.integers(0, 4, N)
    centres = 6 * draw.normal(size=(4, 2))
    kinds = {
        "map": centres[y] + draw.normal(size=(N, 2)),
        "counts": draw.poisson(3 * np.exp(draw.normal(size=(4, 20)))[y]).astype(float),
        "codes": np.sign(draw.normal(size=(4, 64))[y] + 0.7 * draw.normal(size=(N, 64))),
        "shares": draw.dirichlet(np.ones(6), size=N),
        "table": np.exp(draw.normal(size=(N, 10))) * 4.0 ** np.arange(10),
    }
    for kind, h in kinds.items():
        assert kind_of(h) == kind
        labels = {} if kind in ("shares", "table") else {"labels": y}
        found = diagnose({"h": h, **labels})
        assert grave(found) == [], (kind, [(f.name, f.evidence) for f in found.findings])
        assert "not judged as contrastive" in found.verdict
    assert kind_of(rows()[0]) == "embedding"


def test_scale_alone_is_no_explosion():
    h, y = rows()
    once, large = (diagnose({"h": s * h, "labels": y}) for s in (1.0, 1e4))
    assert [one.name for one in once.findings] == [one.name for one in large.findings]
    assert grave(large) == []


# ---- sentences that were wrong ----


def test_twins_are_said_with_the_distance_that_decided_and_listed_with_partners():
    h, _ = rows()
    h[:80] = h[80:160] + 1e-4
    found = diagnose(h)
    one = finding(found, "duplicated_samples")
    assert f"less than {found.measures['near_twins_bound']:.2g} times" in one.evidence
    assert "0.01" not in one.evidence
    listed = found.lists["near_twins"].table()
    assert sorted(listed["row"]) == list(range(160))
    assert all(abs(a - b) == 80 for a, b in zip(listed["row"], listed["twin"], strict=True))


def test_a_map_has_no_twins():
    assert "duplicated_samples" not in grave(
        diagnose(np.random.default_rng(0).normal(size=(2000, 2)))
    )


def test_a_few_outliers_are_no_collapse():
    h, y = rows()
    h[:12] *= 1000
    found = diagnose({"h": h, "labels": y})
    assert "dimensional_collapse" not in grave(found)
    assert "full_collapse" not in grave(found)
    assert "12 of 300 rows" in finding(found, "outlier_rows").evidence
    assert found.measures["effective_rank_without_far"] > 5
    assert len(found.lists["far_rows"]) == 12


def test_a_few_long_rows_leave_no_points_behind():
    """Of five rows a hundred times as long the spread is theirs, and all others look like one."""
    h, y = rows()
    h[:5] *= 100
    found = diagnose({"h": h, "labels": y})
    assert found.state == "nothing found"
    assert "point_collapse" not in [one.name for one in found.findings]
    assert finding(found, "outlier_rows").severity == "note"
    assert "5 of 300 rows (1.67 %)" in finding(found, "outlier_rows").evidence
    zeros = diagnose(np.zeros((300, 8)))
    assert "300 of 300 rows (100 %)" in zeros.findings[0].evidence


def test_the_metric_that_names_more_is_said_as_such():
    y = np.arange(300) % 2
    h = np.random.default_rng(0).normal(size=(300, 4))
    h *= ((1 + 4 * y) / np.linalg.norm(h, axis=1))[:, None]
    sure = finding(diagnose({"h": h, "labels": y}), "euclidean_neighbours").confidence
    assert "Euclidean neighbours predict" in sure
    assert "by cosine" in sure


def test_a_class_that_fell_onto_another_is_named_by_what_it_takes():
    draw = np.random.default_rng(0)
    y = np.repeat(np.arange(6), 100)
    h = 1.5 * draw.normal(size=(6, 16))[y] + draw.normal(size=(600, 16))
    well = diagnose({"h": h, "labels": y})
    assert "class_collapse" not in [one.name for one in well.findings]
    h[y == 2] = h[y == 4].mean(axis=0) + 0.05 * draw.normal(size=(100, 16))
    found = diagnose({"h": h, "labels": y})
    first = found.findings[0]
    assert (first.name, first.severity) == ("class_collapse", "warning")
    takes = found.measures["class_tightest_takes"]
    assert takes > 0.03 > found.measures["class_typical_takes"]
    assert f"{takes:.1%} of the rows of other classes are assigned to it" in first.evidence
    # the cure, by hand: neighbours of the other classes among themselves
    rest = y != 2
    votes = cs.diagnostics.knn_leave_one_out(h[rest], y[rest])
    assert found.measures["cure_tight_class_after"] == pytest.approx(votes)
    # a point away from all others takes nothing
    h[y == 2] = 40 * np.eye(16)[0] + 0.05 * draw.normal(size=(100, 16))
    apart = diagnose({"h": h, "labels": y})
    assert finding(apart, "class_collapse").severity == "note"


def test_zero_rows_are_neither_collapsed_nor_twins():
    found = diagnose(np.zeros((200, 8)))
    assert grave(found) == ["zero_rows"]
    assert "200 of 200 rows" in found.findings[0].evidence
    some = rows()[0]
    some[:40] = 0
    names = grave(diagnose(some))
    assert names[0] == "zero_rows"
    assert "duplicated_samples" not in names


def test_an_offset_is_no_collapse_and_its_cure_is_a_line():
    h, y = rows(spread=3.0)
    h = h * np.exp(1.5 * np.random.default_rng(1).normal(size=(N, 1))) + 5000
    found = diagnose({"h": h, "labels": y})
    assert found.findings[0].name == "common_offset"
    assert "full_collapse" not in grave(found)
    assert found.findings[0].line == "h = h - h.mean(axis=0)"


def test_half_shuffled_pairs_are_not_told_to_weaken_the_views():
    h, _ = rows()
    draw = np.random.default_rng(1)
    views = [h + 0.3 * draw.normal(size=h.shape) for _ in range(2)]
    views[1][: N // 2] = views[1][draw.permutation(N // 2)]
    found = diagnose({"z1": views[0], "z2": views[1]})
    assert found.findings[0].name == "mispaired_views"
    assert "strong_views" not in grave(found)
    assert "weaken" not in found.findings[0].advice


def test_rows_off_by_one_are_told_from_where():
    h, _ = rows()
    draw = np.random.default_rng(1)
    views = [h + 0.3 * draw.normal(size=h.shape) for _ in range(2)]
    views[1][200:] = np.roll(views[1][200:], 1, axis=0)
    one = diagnose({"z1": views[0], "z2": views[1]}).findings[0]
    assert one.name == "mispaired_views"
    assert "+1 rows away from row 20" in one.evidence


def test_a_file_is_not_told_about_a_learning_rate():
    h, _ = rows()
    for subject in (np.ones((100, 8)), h * (np.arange(D) > 11), np.zeros((100, 8))):
        for one in diagnose(subject).findings:
            assert "learning rate" not in one.advice
            assert one.settings == {}


def test_neighbours_are_of_cosines_and_it_is_said():
    draw = np.random.default_rng(0)
    y = draw.integers(0, 4, N)
    angle = 2 * np.pi * draw.random(N)
    circle = np.array([1.0, 4.0, 2.0, 8.0])[y] * np.stack([np.cos(angle), np.sin(angle)])
    h = np.c_[circle.T, 0.01 * draw.normal(size=(N, 2))]
    one = finding(diagnose({"h": h, "labels": y}), "euclidean_neighbours")
    assert "cosine neighbours predict" in one.evidence
    assert one.cost.after > 0.9 > 0.5 > one.cost.before


# ---- advice ----

PRESETS = ("simclr", "clip", "adaptive-temperature", "moco", "byol", "vicreg", "directclr")
PRESETS += ("kernel-infonce-sum", "kernel-infonce-loss-sum", "supcon", "process", "text", "table")


@pytest.mark.parametrize("preset", PRESETS)
def test_advice_for_a_preset_parses_and_keeps_the_objective(preset):
    settings = read_settings(preset)
    table = settings.table()
    text = table["objective"]
    hot = with_temperature(text, 0.3)
    if preset in ("byol", "vicreg"):
        assert hot is None
    else:
        assert type(cs.parse(hot)) is type(cs.parse(text))
        assert str(read_call(text)) == str(read_call(str(read_call(text))))
        assert "0.3" in hot
        read_settings(preset, [f"objective={hot}"])
    views = scaled_views(table["views"]["first"], 0.5)
    if views is not None:
        assert views != table["views"]["first"]
        read_settings(preset, [f"views.first={views}"])
    standard = projector_that(table["network"]["projector"], last="standardise")
    if standard is not None:
        read_settings(preset, [f"network.projector={standard}"])


def test_texts_are_told_to_mask_more_and_not_to_crop():
    facts = {"pair_alignment": 1e-4, "pair_alignment_shuffled": 1.0, "n": 500}
    one = findings(Facts(facts, {"views.first": "Mask(p=0.01, span=6)"}))[0]
    assert one.name == "weak_views"
    assert one.settings["views.first"].startswith("Mask(p=0.")
    bare = findings(Facts(facts))[0]
    assert bare.settings == {}


def test_a_setting_that_is_so_already_is_not_repeated():
    made = lambda facts: Finding("a", "note", "1", "", "", "", "", {"batch": 256, "epochs": 9})
    assert findings(Facts({}, {"batch": 256, "epochs": 5}), [made])[0].settings == {"epochs": 9}
    assert findings(Facts({}, {"batch": 256}), [made])[0].settings == {}  # of another loop
    assert findings(Facts({}), [made])[0].settings == {}


def test_causes_come_before_symptoms_and_take_their_severity():
    cause = lambda facts: Finding("cause", "warning", "1", "", "", "", "", explains=("collapse",))
    symptom = lambda facts: Finding("collapse", "critical", "2", "x", "", "", "", symptom=True)
    found = findings(Facts({}), [symptom, cause])
    assert [(one.name, one.severity) for one in found] == [
        ("cause", "critical"),
        ("collapse", "note"),
    ]
    assert found[1].cause == "follows from cause; x"


# ---- cures ----


def test_the_cost_is_what_the_line_regains():
    h, y = rows(spread=4.0)
    draw = np.random.default_rng(2)
    u = np.linalg.qr(draw.normal(size=(D, 1)))[0].T
    h = h + 300 * draw.normal(size=(N, 1)) * u
    one = finding(diagnose({"h": h, "labels": y}), "dominating_direction")
    space = {"h": h, "np": np}
    exec(one.line, space)  # noqa: S102
    after = cs.diagnostics.knn_leave_one_out(space["h"], y, 20, "majority")
    assert one.cost.after == pytest.approx(after, abs=2 / N)
    assert one.cost.low < one.cost.gain < one.cost.high
    assert graded(one.cost) == graded(dataclasses.replace(one.cost, of="recall_1"))
    assert f"{100 * one.cost.gain:+.1f} points" in one.confidence


def test_a_paired_gain_is_the_mean_difference_with_its_interval():
    before, after = np.zeros(100), np.r_[np.ones(20), np.zeros(80)]
    gain = paired("knn_accuracy", before, after)
    assert (gain.before, gain.after, gain.gain) == (0.0, 0.2, 0.2)
    assert gain.high - gain.gain == pytest.approx(1.96 * math.sqrt(0.2 * 0.8 / 100))
    nothing = paired("knn_accuracy", before, before)
    assert nothing.low < 0 < nothing.high


def test_neighbours_that_a_cure_leaves_alone_do_not_move():
    h, _ = rows()
    assert Rows(h).gain(3 * h).gain == 0
    assert Rows(h).gain(np.random.default_rng(0).normal(size=h.shape)).gain > 0.8


def test_rows_with_a_split_and_no_labels_are_dropped_and_compared_with_all():
    h, _ = rows()
    h[::10] = 0
    split = np.arange(N) % 2
    found = diagnose({"h": h, "split": split})
    assert found.measures["cure_nonzero_of"] == "neighbours"
    assert found.measures["cure_nonzero_n"] == N - N // 10
    whole = diagnose({"h": h})
    assert found.measures["cure_nonzero_gain"] == whole.measures["cure_nonzero_gain"]


def test_recall_counts_partners_that_are_nearest():
    pairs = Pairs(np.eye(4), np.eye(4)[[0, 1, 3, 2]])
    assert pairs.base.tolist() == [1, 1, 0, 0]
    assert pairs.gain(np.eye(4), np.eye(4)).gain == 0.5


def test_lengths_that_vary_are_no_explosion():
    """A largest row of 1.4 medians is nothing, and a norm is not compared with an entry's limit."""
    h, y = rows()
    h = h / np.linalg.norm(h, axis=1, keepdims=True)
    h = 300.0 * h * np.random.default_rng(3).uniform(0.7, 1.39, size=(N, 1))
    found = diagnose({"h": h.astype(np.float16), "labels": y})
    assert grave(found) == []
    assert "outlier_rows" not in [one.name for one in found.findings]
    words = " ".join(f"{one.evidence} {one.cause} {one.advice}" for one in found.findings)
    assert "float16" not in words
    assert "65504" not in words


def test_one_row_is_not_called_rows():
    h, y = rows()
    h[7] *= 100
    one = finding(diagnose({"h": h, "labels": y}), "outlier_rows")
    assert "1 of 300 rows" in one.evidence
    assert "1 rows" not in f"{one.evidence} {one.advice}"


# ---- what is so by construction ----


def test_features_that_start_at_zero_share_a_mean_without_fault():
    """Histograms and relu features: the mean is no fault unless it costs very much."""
    draw = np.random.default_rng(0)
    y = draw.integers(0, 6, 500)
    h = np.maximum(draw.normal(size=(6, 48))[y] + 1.3 * draw.normal(size=(500, 48)) + 0.5, 0)
    found = diagnose({"h": h, "labels": y})
    assert found.measures["rectified"]
    assert grave(found) == []
    shifted = diagnose({"h": h + 10.0, "labels": y})
    assert not shifted.measures["rectified"]


def test_principal_directions_spread_unevenly_without_fault():
    draw = np.random.default_rng(1)
    y = draw.integers(0, 8, 600)
    x = (draw.normal(size=(8, 60))[y] + draw.normal(size=(600, 60))) @ draw.normal(size=(60, 60))
    x = x - x.mean(axis=0)
    U, s, _ = np.linalg.svd(x, full_matrices=False)
    found = diagnose({"h": U[:, :20] * s[:20], "labels": y})
    assert found.measures["principal"]
    assert not diagnose({"h": x[:, :20], "labels": y}).measures["principal"]
    assert "uneven_dimensions" not in grave(found)


def test_few_classes_in_order_are_no_leak():
    """Three species by the length of a petal; a code beside them is one."""
    draw = np.random.default_rng(2)
    y = draw.integers(0, 3, 300)
    size = y + 0.25 * draw.normal(size=300)
    h = size[:, None] * [1.0, 0.6, 1.8, 0.9] + 0.3 * draw.normal(size=(300, 4)) + [5, 3, 2, 1]
    assert "leaked_label" not in grave(diagnose({"h": h, "labels": y}))
    leaked = np.c_[rows()[0], 20.0 * (y + 0.01 * draw.normal(size=300))]
    assert "leaked_label" in grave(diagnose({"h": leaked, "labels": y}))


def test_logarithms_of_counts_are_not_quantised():
    draw = np.random.default_rng(3)
    y = draw.integers(0, 4, 400)
    rate = 0.4 * np.exp(draw.normal(size=(4, 40)))[y]
    h = np.log1p(draw.poisson(rate))
    h = h[h.any(axis=1)]
    assert "coarse_quantisation" not in grave(diagnose(h))


def test_classes_that_overlap_are_no_wrong_labels():
    draw = np.random.default_rng(4)
    y = draw.integers(0, 10, 900)
    h = 0.45 * draw.normal(size=(10, 12))[y] + draw.normal(size=(900, 12))
    found = diagnose({"h": h, "labels": y})
    assert found.measures["knn_accuracy"] < 0.5
    assert "label_noise" not in grave(found)


def test_two_renderings_of_a_sample_are_pairs():
    """Sides that differ more than samples do: the partner is there, and no pair is wrong."""
    draw = np.random.default_rng(5)
    shared = draw.normal(size=(400, 4)) @ draw.normal(size=(4, 32))
    first, second = (shared + 1.5 * draw.normal(size=(400, 32)) + 2 * k for k in (0, 1))
    assert "strong_views" not in grave(diagnose({"h1": first, "h2": second}))
    assert "mispaired_views" not in grave(diagnose({"h1": first, "h2": second}))
    assert "side_scales" not in grave(diagnose({"h1": first, "h2": second}))
