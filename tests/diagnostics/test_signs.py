"""Signs of ills, each planted in rows where it is known and in rows that merely look like it."""

import numpy as np
import pytest

from chiaroscuro.diagnostics import Facts, diagnose, findings
from chiaroscuro.diagnostics.assembly.signs import kind_of

N, D, CLASSES = 400, 24, 8


def rows(spread=1.0, d=D, classes=CLASSES):
    """Classes that overlap the more, the larger the spread."""
    draw = np.random.default_rng(0)
    y = draw.integers(0, classes, N)
    mixed = draw.normal(size=(d, d)) / np.sqrt(d) + np.eye(d)
    h = draw.normal(size=(classes, d))[y] + spread * draw.normal(size=(N, d)) @ mixed
    return h, y, draw


def named(found):
    return [one.name for one in found.findings]


def grave(found):
    return [one.name for one in found.findings if one.severity != "note"]


def finding(found, name):
    return next(one for one in found.findings if one.name == name)


# ---- labels written beside the rows ----


def test_a_code_of_the_classes_in_any_order_is_a_leak():
    h, y, draw = rows(spread=3.0)
    one_hot = np.eye(CLASSES)[y] + 0.05 * draw.normal(size=(N, CLASSES))
    found = diagnose({"h": np.c_[h, 5 * one_hot], "labels": y})
    one = finding(found, "leaked_label")
    assert named(found)[0] == "leaked_label"
    assert f"{CLASSES} of {D + CLASSES} dimensions predict" in one.evidence
    assert found.measures["code_alone"] > found.measures["code_others"] + 0.2
    number = draw.permutation(CLASSES)[y] + 0.02 * draw.normal(size=N)
    found = diagnose({"h": np.insert(h, 3, 9 * number, axis=1), "labels": y})
    assert "leaked_label" in grave(found)
    assert finding(found, "leaked_label").line == "h = np.delete(h, 3, axis=1)"


def test_a_sharp_dimension_of_the_encoder_is_no_leak():
    """It shares with other dimensions what varies inside classes."""
    h, y, draw = rows(spread=1.0)
    unit = 3 * draw.permutation(CLASSES)[y] + 0.5 * h @ draw.normal(size=D)
    found = diagnose({"h": np.c_[h, unit], "labels": y})
    assert found.measures["code_shared"] > 0.5
    assert "leaked_label" not in grave(found)


def test_a_dimension_of_one_class_is_no_code_of_all():
    """A word that only one class uses tells that class sharply, and no other."""
    h, y, draw = rows(spread=2.0)
    flag = 10.0 * (y == 2) + 0.05 * draw.normal(size=N)
    found = diagnose({"h": np.c_[h, flag], "labels": y})
    assert found.measures["code_fall"] > 15
    assert "leaked_label" not in named(found)


def test_a_rotated_code_is_a_leak_whatever_its_order():
    h, y, draw = rows(spread=3.0)
    code = 6 * (draw.permutation(CLASSES) - 3.5)[y] + 0.05 * draw.normal(size=N)
    Q = np.linalg.qr(draw.normal(size=(D + 1, D + 1)))[0]
    found = diagnose({"h": np.c_[h, code] @ Q, "labels": y})
    one = finding(found, "leaked_label")
    assert "by itself" in one.evidence
    assert named(found)[0] == "leaked_label"


def test_labels_wrong_at_random_are_a_warning_and_overlapping_classes_a_note():
    h, y, draw = rows(spread=0.3)
    wrong = draw.permutation(N)[:100]
    y[wrong] = draw.integers(0, CLASSES, 100)
    found = diagnose({"h": h, "labels": y})
    assert grave(found)[0] == "label_noise"
    assert "of all labels are wrong" in finding(found, "label_noise").advice
    h, y, draw = rows(spread=0.3)
    y = 2 * (y // 2) + draw.integers(0, 2, N)  # classes in pairs that nothing tells apart
    found = diagnose({"h": h, "labels": y})
    one = finding(found, "label_noise")
    assert one.severity == "note"
    assert "classes overlap, or labels are wrong in a pattern" in one.cause
    assert "suspects" in one.advice
    assert len(found.lists["suspects"].rows) == found.measures["suspect_count"] > 0


# ---- sides of a split ----


def test_a_noisy_test_side_is_a_shift_though_its_rows_are_no_neighbours():
    h, y, draw = rows(spread=0.8)
    split = (draw.random(N) < 0.4).astype(int)
    assert "split_shift" not in named(diagnose({"h": h, "labels": y, "split": split}))
    h[split == 1] += 2.0 * draw.normal(size=((split == 1).sum(), D))
    found = diagnose({"h": h, "labels": y, "split": split})
    assert found.measures["split_gap_score"] > 4
    assert "split_shift" in grave(found)
    assert "points lower than within the training side" in finding(found, "split_shift").evidence


def test_a_shift_is_not_blamed_on_labels_nor_on_dimensions():
    h, y, draw = rows(spread=0.8)
    split = (draw.random(N) < 0.4).astype(int)
    h[np.ix_(split == 1, [1, 5, 7])] += 40.0
    found = diagnose({"h": h, "labels": y, "split": split})
    assert grave(found)[0] == "split_shift"
    assert found.findings[0].severity == "critical"
    assert not {"label_noise", "at_chance"} & set(grave(found))


# ---- rows ----


def test_rows_that_are_zero_to_rounding_are_zero():
    h, y, draw = rows()
    h[:40] = 1e-13 * draw.normal(size=(40, D))
    found = diagnose({"h": h, "labels": y})
    assert grave(found)[0] == "zero_rows"
    assert "40 of 400 rows" in found.findings[0].evidence
    assert sorted(found.lists["zero"].rows) == list(range(40))
    small = rows()[0]
    small[:40] *= 1e-3  # short, and not zero
    assert "zero_rows" not in named(diagnose({"h": small, "labels": y}))


def test_twins_are_seen_where_nearly_every_row_has_one():
    draw = np.random.default_rng(0)
    half = draw.normal(size=(N // 2, D))
    h = np.concatenate([half, half + 0.03 * draw.normal(size=half.shape)])
    found = diagnose({"h": h})
    assert found.measures["near_twins"] > 0.9
    assert "duplicated_samples" in grave(found)
    assert diagnose({"h": draw.normal(size=(N, D))}).measures["near_twins"] < 0.005


def test_a_group_of_long_rows_is_far_however_lengths_vary():
    h, y, draw = rows()
    h = h * np.exp(0.7 * draw.normal(size=(N, 1)))
    assert diagnose({"h": h, "labels": y}).measures["far_rows"] < 8
    wild = draw.permutation(N)[:80]
    h[wild] = 500 * draw.normal(size=(80, D)) / np.sqrt(D)
    found = diagnose({"h": h, "labels": y})
    assert abs(found.measures["far_rows"] - 80) <= 8
    assert grave(found)[0] == "outlier_rows"


def test_a_heavy_tail_without_labels_is_a_note():
    draw = np.random.default_rng(3)
    h = draw.normal(size=(N, D)) * (draw.pareto(1.2, size=(N, 1)) + 0.5)
    found = diagnose({"h": h})
    assert found.measures["far_rows"] >= 0.02 * N
    assert "outlier_rows" not in grave(found)
    h = draw.normal(size=(N, D))
    h[:30] *= 20
    assert "outlier_rows" in grave(diagnose({"h": h}))


def test_a_wide_direction_is_not_two_encoders():
    h, y, draw = rows(spread=1.5)
    u = np.linalg.qr(draw.normal(size=(D, 1)))[0].T
    wide = diagnose({"h": h + 60 * (2 * draw.random((N, 1)) - 1) * u, "labels": y})
    assert wide.measures["groups_apart_centred"] < 0.5
    assert grave(wide)[0] == "dominating_direction"
    assert "mixed_encoders" not in named(wide)
    Q = np.linalg.qr(draw.normal(size=(D, D)))[0]
    other = draw.random(N) < 0.5
    two = diagnose({"h": np.where(other[:, None], h @ Q + 8, h), "labels": y})
    assert "mixed_encoders" in named(two)[:2]


# ---- directions ----


def test_logits_lack_one_direction_without_fault():
    h, y, _ = rows(spread=1.5, d=10, classes=10)
    found = diagnose({"h": h - h.mean(axis=1, keepdims=True), "labels": y})
    assert found.measures["fall_at"] == 9
    assert "dimensional_collapse" not in grave(found)


def test_a_bottleneck_is_the_cause_of_what_it_brings_about():
    h, y, draw = rows(d=40)
    low = np.tanh((h - h.mean(axis=0)) @ np.linalg.qr(draw.normal(size=(40, 3)))[0])
    found = diagnose({"h": low @ draw.normal(size=(3, 40)), "labels": y})
    assert found.findings[0].name == "dimensional_collapse"
    assert "after direction 3" in found.findings[0].evidence
    assert not {"label_noise", "point_collapse", "mixed_encoders"} & set(grave(found))


def test_rows_along_one_direction_are_no_points():
    draw = np.random.default_rng(4)
    line = draw.normal(size=(N, 1)) * draw.normal(size=(1, D))
    found = diagnose({"h": line + 1e-3 * draw.normal(size=(N, D))})
    assert 0 < found.measures["points_if_normal"] < 2 * found.measures["points"]
    assert "point_collapse" not in named(found)
    at = draw.normal(size=(3, D))[draw.integers(0, 3, N)]
    points = diagnose({"h": at + 0.01 * draw.normal(size=(N, D))})
    assert points.measures["points"] == 3
    assert "point_collapse" in grave(points)


def test_half_of_the_rows_at_a_few_points_are_a_collapse_and_rows_near_the_mean_are_not():
    h, y, draw = rows()
    some = draw.permutation(N)[:280]
    h[some] = h[draw.choice(N, 4)][draw.integers(0, 4, 280)] + 0.01 * draw.normal(size=(280, D))
    found = diagnose({"h": h, "labels": y})
    assert found.measures["points"] <= 4
    assert "50 % of the rows" in finding(found, "point_collapse").evidence
    long = rows()[0] * np.exp(1.5 * draw.normal(size=(N, 1)))
    assert "point_collapse" not in named(diagnose({"h": long, "labels": y}))


def test_dimensions_in_few_directions_are_told_from_dimensions_that_repeat():
    h, y, draw = rows(d=20)
    low = h[:, :6] @ draw.normal(size=(6, 40))
    found = diagnose({"h": low, "labels": y})
    assert found.measures["tied_dimensions"] == 1
    assert named(found)[0] == "dimensional_collapse"
    assert "repeated_dimensions" not in named(found)
    again = diagnose({"h": np.c_[h, h[:, :2] @ draw.normal(size=(2, 60))], "labels": y})
    assert again.measures["tied_dimensions"] == pytest.approx(62 / 80, abs=0.02)
    assert "repeated_dimensions" in named(again)
    assert "dimensional_collapse" not in grave(again)[:1]


def test_noise_in_a_cone_is_a_collapse_and_structure_in_it_is_an_offset():
    draw = np.random.default_rng(5)
    noise = 100 + draw.normal(size=(N, D))
    found = diagnose({"h": noise, "labels": draw.integers(0, 3, N)})
    assert abs(found.measures["structure"]) < 0.05
    assert "full_collapse" in named(found)[:2]
    h, y, _ = rows(spread=0.5)
    told = diagnose({"h": 300 + h, "labels": y})
    assert "full_collapse" not in grave(told)
    assert "common_offset" in named(told)


def test_the_first_principal_direction_is_wide_by_construction():
    draw = np.random.default_rng(6)
    x = draw.normal(size=(N, 20)) * np.r_[40.0, 6.0, np.linspace(3, 0.5, 18)]
    x = x - x.mean(axis=0)
    U, s, _ = np.linalg.svd(x, full_matrices=False)
    found = diagnose({"h": U * s})
    assert found.measures["principal"]
    assert "dominating_direction" in named(found)
    assert "dominating_direction" not in grave(found)


# ---- what rows are ----


def test_principal_directions_are_no_table_though_they_spread_unevenly():
    draw = np.random.default_rng(7)
    spread = np.geomspace(1, 300, 12)
    assert kind_of(np.abs(draw.normal(size=(N, 12))) * spread) == "table"
    assert kind_of(draw.normal(size=(N, 12)) * spread) == "embedding"


def test_levels_are_counted_in_dimensions_that_move():
    h, y, _ = rows(d=128)
    h[:, ::2] = 0.0
    h = np.round(h / 2)
    found = diagnose({"h": h, "labels": y})
    assert 3 <= found.measures["levels"] <= 8


def test_signs_with_few_ones_are_quantised_and_words_that_are_there_are_not():
    draw = np.random.default_rng(8)
    rare = draw.random((N, 60)) < 0.03
    rare[np.arange(N), draw.integers(0, 60, N)] = True
    signs = finding(diagnose({"h": np.where(rare, 1.0, -1.0)}), "coarse_quantisation")
    assert signs.severity == "warning"
    words = diagnose({"h": rare.astype(float)})
    assert "coarse_quantisation" not in grave(words)


# ---- pairs ----


def test_views_that_share_little_are_not_called_mispaired():
    """Ranks of partners fall off evenly; those of swapped rows are first or anywhere."""
    h, _, draw = rows(d=60)
    weak = [0.2 * h + draw.normal(size=h.shape) for _ in range(2)]
    found = diagnose({"h1": weak[0], "h2": weak[1]})
    assert found.measures["pairs_uniform"] > 0.2
    assert "mispaired_views" not in named(found)
    sides = [h + 0.3 * draw.normal(size=h.shape) for _ in range(2)]
    some = draw.permutation(N)[:120]
    sides[1][some] = draw.normal(size=(120, 60)) * h.std(axis=0) + h.mean(axis=0)
    assert named(diagnose({"h1": sides[0], "h2": sides[1]}))[0] == "mispaired_views"


def test_an_offset_of_both_sides_is_no_gap():
    h, _, draw = rows(spread=2.0)
    sides = [h + 0.5 * draw.normal(size=h.shape) + 40 for _ in range(2)]
    sides[1] = sides[1] + 0.3
    found = diagnose({"h1": sides[0], "h2": sides[1]})
    assert "modality_gap" not in grave(found)
    apart = diagnose({"h1": sides[0] - 80, "h2": sides[1]})
    assert grave(apart)[0] == "modality_gap"


# ---- trainings ----


def test_views_at_chance_are_weakened_more_than_views_that_are_hard():
    facts = {"pair_nearer": 0.5, "pair_error": 0.01, "negative_deviation": 1.0, "steps": 500}
    facts |= {"view1_nearer": 0.55, "view2_nearer": 0.55, "n": 900}
    one = next(x for x in findings(Facts(facts)) if x.name == "strong_views")
    assert one.target == {"views": 0.1}
    assert "to 0.1 of their strength" in one.advice
    one = next(x for x in findings(Facts(facts | {"pair_nearer": 0.7})) if x.name == "strong_views")
    assert one.target == {"views": 0.25}


def test_views_are_not_strong_where_nothing_is_augmented():
    """A run that never left the cone has positives at chance; its views need not be the cause."""
    measures = {"pair_nearer": 0.5, "pair_error": 0.01, "negative_deviation": 1.0, "steps": 500}
    measures |= {"last_loss": 5.541, "collapsed_loss": 5.541, "z_mean_cosine": 0.98, "n": 900}
    measures |= {"view1_nearer": 0.55, "view2_nearer": 0.55}
    settings = {"views.first": "SimCLR(size=32)", "network.projector": "Projector(d=64, depth=1)"}
    augmented = findings(Facts(measures, settings))
    assert augmented[0].name == "strong_views"
    plain = findings(Facts(measures, settings | {"views.first": ""}))
    assert plain[0].name == "stuck_at_the_start"
    assert "strong_views" not in {one.name for one in plain}


@pytest.mark.parametrize(("hardest", "blind"), [(0.62, True), (0.80, False)])
def test_the_hardest_negatives_are_compared_beyond_chance(hardest, blind):
    """Of six classes a sixth of all negatives are of the same class, whatever was learnt."""
    facts = {"pair_nearer": 0.83, "pair_error": 0.01, "knn_accuracy": 0.85, "last_loss": 4.0}
    facts |= {"false_all": 1 / 6, "false_hardest": hardest, "n": 900}
    cost = {"of": "knn_accuracy", "before": 0.76, "after": 0.85, "gain": 0.09}
    cost |= {"low": 0.06, "high": 0.12, "n": 900}
    facts |= {f"cure_untrained_{k}": v for k, v in cost.items()}
    assert ("class_blind" in [one.name for one in findings(Facts(facts))]) is blind
    slow = facts | {"collapsed_loss": 4.4, "z_mean_cosine": 0.6, "steps": 500}
    first = findings(Facts(slow))[0].name  # a batch of one class is hard, and its loss is high
    assert first == ("class_blind" if blind else "stuck_at_the_start")
