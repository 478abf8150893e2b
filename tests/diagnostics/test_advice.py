"""Every rule has its planted pathology, and is silent on the healthy original."""

import numpy as np
import pytest

import chiaroscuro as cs
from chiaroscuro.diagnostics import About, Known, diagnose, findings
from chiaroscuro.diagnostics.advice import RULES, SEVERITIES, Finding
from chiaroscuro.engine import read_settings
from chiaroscuro.references import bibliography

LOSS = cs.InfoNCE(cs.Cosine(tau=0.2))


@pytest.fixture(scope="module")
def healthy():
    draw = np.random.default_rng(0)
    n, d = 400, 32
    y = draw.integers(0, 10, n)
    h = 1.5 * draw.normal(size=(10, d))[y] + draw.normal(size=(n, d))
    W = np.linalg.qr(draw.normal(size=(d, d)))[0][:, :24]
    views = [h + 0.4 * draw.normal(size=h.shape) for _ in range(2)]
    a = {"h": h, "z": h @ W, "labels": y}
    for side, view in enumerate(views, start=1):
        a |= {f"h{side}": view, f"z{side}": view @ W}
    a["layers"] = {"untrained": np.maximum(draw.normal(size=(n, d)) + 0.2 * h, 0)}
    a["factors"] = a["layers"]["untrained"][:, :2] * 1.0
    a["h"][:, :2] = a["factors"]
    return a


def grave(found):
    return [one.name for one in found.findings if one.severity != "note"]


def test_the_healthy_are_left_alone(healthy):
    history = [{"loss": 5.0 - 0.02 * k} for k in range(100)]
    found = diagnose(healthy, About(LOSS, 128, history=history))
    assert grave(found) == []
    assert found.verdict.startswith("Healthy")


# ---- one planted pathology for each rule ----


def full_collapse(a, draw):
    return {"h": 10 + 0.1 * a["h"]}, About()


def dimensional_collapse(a, draw):
    U, s, V = np.linalg.svd(a["h"] - a["h"].mean(0), full_matrices=False)
    return {"h": (U[:, :6] * s[:6]) @ V[:6]}, About()


def dead_dimensions(a, draw):
    return {"h": a["h"] * (np.arange(32) > 6)}, About()


def false_negatives(a, draw):
    few = a["labels"] < 2
    return {name: a[name][few] for name in ("z1", "z2", "labels")}, About()


def few_negatives(a, draw):
    return {"z1": a["z1"], "z2": a["z2"]}, About(LOSS, 4)


def mispaired_views(a, draw):
    return {"z1": a["z1"], "z2": np.roll(a["z2"], 1, axis=0)}, About()


def strong_views(a, draw):
    strangers = a["z2"][draw.permutation(len(a["z2"]))]
    return {"z1": a["z1"], "z2": 0.2 * a["z2"] + strangers}, About()


def weak_views(a, draw):
    return {"z1": a["z1"], "z2": a["z1"] + 0.01 * draw.normal(size=a["z1"].shape)}, About()


def duplicated_samples(a, draw):
    return {"h": np.concatenate([a["h"], a["h"][:20]])}, About()


def exploding_norms(a, draw):
    return {"h": a["h"] * np.where(np.arange(400) == 9, 1e3, 1.0)[:, None]}, About()


def hubs(a, draw):
    h = np.c_[np.ones((400, 1)), draw.normal(size=(400, 128)) / 8]
    h[:4, 1:] *= 0.1
    return {"h": h}, About()


def imbalanced_classes(a, draw):
    keep = 0.4 ** a["labels"] > draw.random(400)
    return {"h": a["h"][keep], "labels": a["labels"][keep]}, About()


def leaked_label(a, draw):
    return {"h": np.c_[a["h"], 1.0 * a["labels"]], "labels": a["labels"]}, About()


def high_temperature(a, draw):
    return {"z1": a["z1"], "z2": a["z2"]}, About(cs.InfoNCE(cs.Cosine(tau=20.0)))


def low_temperature(a, draw):
    return {"z1": a["z1"], "z2": a["z2"]}, About(cs.InfoNCE(cs.Cosine(tau=0.005)))


def projector_for_encoder(a, draw):
    return {"h": a["h"][:, 2:5], "z": a["h"], "labels": a["labels"]}, About()


def hardly_trained(a, draw):
    history = [{"loss": 5.5 - 0.01 * k, "step": k} for k in range(40)]
    return {"z1": a["z1"], "z2": np.roll(a["z2"], 1, axis=0)}, About(history=history)


def stuck_at_the_start(a, draw):
    return {"h": a["h"]}, About(LOSS, 128, history=[{"loss": 5.54}] * 30)


def suppressed_style(a, draw):
    blind = {**a, "h": a["h"][:, 2:]}
    return {name: blind[name] for name in ("h", "labels", "factors", "layers")}, About()


def untrained_model(a, draw):
    before = a["layers"]["untrained"]
    return {"h": 2 * before, "labels": a["labels"], "layers": a["layers"]}, About()


PLANTED = (
    *(full_collapse, dimensional_collapse, dead_dimensions, false_negatives, few_negatives),
    *(mispaired_views, strong_views, weak_views, duplicated_samples, exploding_norms, hubs),
    *(imbalanced_classes, leaked_label, high_temperature, low_temperature),
    *(hardly_trained, projector_for_encoder, stuck_at_the_start, suppressed_style),
    untrained_model,
)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_pathology_is_found_first(healthy, plant):
    subject, about = plant(healthy, np.random.default_rng(1))
    found = diagnose(subject, about)
    assert plant.__name__ in grave(found)[:2], [(f.name, f.evidence) for f in found.findings]
    one = next(one for one in found.findings if one.name == plant.__name__)
    assert any(c.isdigit() for c in one.evidence)
    assert one.paper in bibliography()
    assert one.cause
    assert one.advice
    assert one.expect
    read_settings("simclr", one.change)  # what it says to set can be set


def test_every_rule_has_its_planted_pathology():
    assert {plant.__name__ for plant in PLANTED} == set(RULES)


def test_a_rule_without_its_measures_says_nothing():
    assert findings(Known({})) == []


def test_a_hot_loss_near_that_of_a_collapse_is_not_stuck():
    losses = {"last_loss": 5.50, "collapsed_loss": 5.54}
    names = lambda z: [one.name for one in findings(Known({**losses, "z_mean_cosine": z}))]
    assert names(0.97) == ["stuck_at_the_start"]
    assert names(0.03) == []


def test_a_training_that_hardly_left_its_start_is_warned():
    slow = {"last_loss": 5.02, "collapsed_loss": 5.54, "steps": 550}
    found = lambda z: [(one.name, one.severity) for one in findings(Known({**slow, **z}))]
    assert found({"z_mean_cosine": 0.51}) == [("stuck_at_the_start", "warning")]
    assert found({"z_mean_cosine": 0.1}) == []


def test_a_temperature_that_let_nothing_be_learnt_comes_before_the_pairs():
    hot = {"negative_deviation": 0.05, "effective_negatives": 99.0, "n_negatives": 100}
    hot |= {"pair_nearer": 0.503, "pair_error": 0.006, "steps": 550, "tau": 10.0}
    hot |= {"pair_alignment": 1.7, "pair_alignment_shuffled": 1.7}
    found = [(one.name, one.severity) for one in findings(Known(hot))]
    assert found == [("high_temperature", "critical"), ("mispaired_views", "note")]


@pytest.mark.parametrize(
    ("kernel", "length", "silent"),
    [
        (cs.Gaussian(tau=0.005), "free", True),
        (cs.Gaussian(tau=0.005), "one", False),
        (cs.Cosine(tau=0.005), "free", False),
        (cs.Dot(tau=0.005), "one", False),
    ],
)
def test_a_temperature_is_low_only_where_the_network_does_not_choose_the_length(
    kernel, length, silent
):
    draw = np.random.default_rng(0)
    z1 = draw.normal(size=(200, 8))
    views = {"z1": z1, "z2": z1 + 0.1 * draw.normal(size=(200, 8))}
    if length == "one":
        views = {name: z / np.linalg.norm(z, axis=1)[:, None] for name, z in views.items()}
    found = {one.name for one in diagnose(views, About(cs.InfoNCE(kernel))).findings}
    assert ("low_temperature" not in found) == silent


def test_style_that_views_draw_anew_is_meant_to_go():
    lost = {"lost_factor": "hue", "lost_r2": 0.02, "lost_before": 0.8, "lost_space": "h"}
    lost |= {"lost_from": "the untrained network", "lost_count": 1}
    severity = lambda settings: [one.severity for one in findings(Known(lost, settings))]
    assert severity({}) == ["warning"]
    assert severity({"views.fresh": True}) == ["note"]


def test_what_follows_from_another_becomes_a_note():
    grave = lambda *explains: (
        lambda known: Finding(
            "a", "critical", "1", "why", "", "", "", strength=1.0, explains=explains
        )
    )
    other = lambda known: Finding("b", "warning", "2", "because", "", "", "")
    assert [one.severity for one in findings(Known({}), [other, grave()])] == [
        "critical",
        "warning",
    ]
    found = findings(Known({}), [other, grave("b")])
    assert [(one.name, one.severity) for one in found] == [("a", "critical"), ("b", "note")]
    assert found[1].cause == "follows from a; because"


def test_findings_are_ranked_by_severity_then_strength():
    made = [
        Finding(str(k), severity, "", "", "", "", "", strength=strength)
        for k, (severity, strength) in enumerate(
            [("note", 9.0), ("warning", 1.0), ("critical", 0.1), ("warning", 2.0)]
        )
    ]
    rules = [lambda known, one=one: one for one in made]
    assert [one.name for one in findings(Known({}), rules)] == ["2", "3", "1", "0"]
    assert SEVERITIES == ("note", "warning", "critical")


def test_advice_speaks_of_the_settings_of_the_run(healthy):
    settings = {
        "objective": "InfoNCE(kernel=Gaussian(tau=50.0), negatives=AllButPair())",
        "network": {"projector": "Projector(d=24, depth=1, last='none')"},
        "views": {"first": "SimCLR(size=32, strength=0.1)"},
    }
    loss = cs.parse(settings["objective"])
    hot = diagnose(
        {"z1": 0.1 * healthy["z1"], "z2": 0.1 * healthy["z2"]}, About(loss, 128, 0, settings)
    )
    change = next(one for one in hot.findings if one.name == "high_temperature").settings
    made = cs.parse(change["objective"])
    assert made.negatives == cs.AllButPair()
    assert made.kernel.tau < 5
    flat = diagnose(np.ones((100, 4)), About(settings=settings))
    assert flat.findings[0].settings == {
        "network.projector": "Projector(d=24, depth=1, last='standardise')"
    }
