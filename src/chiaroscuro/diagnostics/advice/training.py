"""Training that did not happen, or did not leave its start; and who is judged by whom."""

from __future__ import annotations

import math

from chiaroscuro.diagnostics.advice.collapse import SYMPTOMS
from chiaroscuro.diagnostics.advice.finding import COSTLY, Facts, Finding, graded
from chiaroscuro.diagnostics.advice.notation import projector_that, with_temperature

__all__ = [
    "batch_statistics",
    "class_blind",
    "hardly_trained",
    "kept_start",
    "projector_for_encoder",
    "stuck_at_the_start",
    "suppressed_style",
    "untrained_model",
]

BEGUN = 50
"""Steps in which hardly any training can have learnt."""
FEW_STEPS = 200
"""Steps below which views that are not told apart say nothing about the views."""
APART = 0.8
"""Share of other samples that a positive is nearer than, where something was learnt."""

PINNED = 0.7
"""Variance of block means over that of chance, below which batches were normalised alone."""
TOLD_APART, LOSES = 0.8, 0.03
"""Share of strangers that a positive is nearer than, and of labels that are surely lost, where a
training learnt samples and forgot classes."""
ALIEN = 0.69
"""How much more often than chance the hardest negative is of the same class, over how much more
often neighbours name the label, where it was never pushed away from other classes: 0.71 to 0.98 in
trainings on mixed batches and 0.46 to 0.68 in those on batches of one class."""
LEARNT = 0.1
"""Share of labels that a network surely gains over its input and its start where it knows classes:
0.17 in trainings on mixed batches, and at most 0.05 in those on batches of one class."""
UNMOVED = 1e-9
"""1 less the cosine of all trained parameters with their start, below which none has moved."""
SAME = 0.97
"""Linear agreement (CKA) with the untrained network above which nothing was learnt."""
SPREAD = 0.8
"""Mean cosine of z below which it has left the cone it began in."""
HARDLY = 0.86
"""Share of the collapsed loss above which a training has hardly left its start."""
BEHIND = 0.03
"""Accuracy by which h may fall behind z."""
KEPT = 0.9
"""Cosine of weights with their random start above which what a paper shows appeared in none of 89
trainings of symbols, twins, projectors, images and unused weights (lab `forgetting`; above 0.7 in
12 of 148). The lab knows no such bound for h of a network, which is judged by what it costs."""
KEPT_ROWS = 0.8
"""The same for rows of a table: chosen on the symbols and twins of the lab, where 46 of 108 runs
without the effect are above it and 0 of 212 with it (above 0.9: 30 and 0)."""
PART = 0.35
"""The same of rows where taking the start out of them surely regains labels or partners."""
FORGOTTEN = 2.5
"""lr wd steps at which decay leaves 8 % of the start; the thresholds of the lab, which are of
lr wd steps - log s for a start of s times the usual size, are 0.4 to 2.2."""
LOST = 0.25
"""R^2 that a factor has lost against the untrained network, from which on it is worth a word."""
GONE = 0.15
"""R^2 below which a factor is gone."""


def untrained_model(facts: Facts) -> Finding | None:
    """h is what the network gave before its first step, or no trained parameter has moved.

    It says nothing where weights were given, loaded perhaps, and any of them has moved since:
    fine-tuning stays near its start.
    """
    agreement, turned = facts.get("untrained_agreement", 0.0), facts.get("encoder_turned")
    still = turned is not None and turned < UNMOVED
    tuned = turned is not None and turned >= UNMOVED and bool(facts.get("start_given"))
    if tuned or not (still or agreement >= SAME):
        return None
    gain = facts.get("gain_over_untrained")
    return Finding(
        name="untrained_model",
        severity="critical",
        evidence=(
            f"h agrees with the untrained network's to {agreement:.4f} (linear CKA; 1 is the same)"
            if not still
            else "the trained parameters of the encoder have not moved, biases included: 1 - their "
            f"cosine with those before training is {turned or 0.0:.1g}"
        )
        + ("" if gain is None else f"; neighbours predict {100 * gain:+.1f} % more labels"),
        cause=(
            "weights were not loaded, or training made no steps"
            if turned is None
            else "training made no steps, or steps at a learning rate of 0 or nearly so"
            if still
            else "training made too few or too small steps, or h does not depend on what moved"
        ),
        advice="check which checkpoint was loaded; train longer, at a learning rate at which the "
        "loss falls (1e-3 is usual for Adam)",
        settings={"epochs": max(50, 2 * int(facts.setting("epochs", 25)))},
        target={"steps": 5 * FEW_STEPS, "lr": "usual"},
        expect="an agreement below 0.9, and more labels than the untrained network",
        paper="chen2020simclr",
        strength=200.0,
        explains=(
            *("stuck_at_the_start", "strong_views", "high_temperature", "low_temperature"),
            *("hardly_trained", "class_blind", "label_noise", "kept_start", *SYMPTOMS),
            *("at_chance", "below_untrained", "suppressed_style"),
        ),
    )


def hardly_trained(facts: Facts) -> Finding | None:
    """Positives are hardly nearer than strangers, after too few steps to expect otherwise."""
    if not facts.has("steps", "pair_nearer"):
        return None
    steps, nearer = int(facts["steps"]), facts["pair_nearer"]
    gain = facts.cost("untrained")
    learnt = gain is not None and gain.gain > 0.1
    same = facts.get("untrained_agreement", 0.0) >= 0.9
    flat = facts.has("first_loss", "last_loss") and (
        facts["first_loss"] - facts["last_loss"] < 0.02 * abs(facts["first_loss"])
    )
    begun = steps < BEGUN or same or (flat and nearer < 0.9) or nearer < APART
    if steps >= FEW_STEPS or not begun or (learnt and steps >= BEGUN):
        return None
    if facts.get("view1_nearer", 1.0) < 0.6 and steps >= BEGUN:
        return None  # the views are at fault: steps would not help
    epochs = int(facts.setting("epochs", 1))
    more = max(epochs + 1, -(-5 * FEW_STEPS * epochs // max(steps, 1)))
    return Finding(
        name="hardly_trained",
        severity="critical",
        evidence=(
            f"after {steps} steps a positive is nearer than {100 * nearer:.1f} % of the other "
            "samples (50 % is chance)"
        ),
        cause="training has hardly begun; other findings may go away with more steps",
        advice="train longer, at a learning rate at which the loss falls, before judging anything "
        "else",
        settings={"epochs": more},
        target={"steps": 5 * FEW_STEPS, "lr": "usual"},
        expect=f"a positive nearer than {100 * APART:.0f} % of the others",
        paper="chen2020simclr",
        strength=180.0,
        explains=(
            *("mispaired_views", "strong_views", "stuck_at_the_start", "class_blind"),
            *("suppressed_style", "projector_for_encoder", "kept_start"),
            *("label_noise", *SYMPTOMS),
        ),
    )


def stuck_at_the_start(facts: Facts) -> Finding | None:
    """The loss stays at log m, that of a collapsed batch: the training never began, or hardly.

    At a high temperature every loss is near log m; then z is spread, and it is no collapse. A
    warning where the loss has left log m by less than a seventh, and z is still half in the cone it
    began in.
    """
    if not facts.has("last_loss", "collapsed_loss"):
        return None
    last, collapsed = facts["last_loss"], facts["collapsed_loss"]
    cone = facts.get("z_mean_cosine", 1.0)
    stuck = abs(last - collapsed) <= 0.02 * collapsed and cone >= SPREAD
    slow = HARDLY * collapsed <= last <= 1.02 * collapsed and cone >= SPREAD / 2
    if not (stuck or (slow and facts.has("steps"))):
        return None
    standard = projector_that(facts.setting("network.projector", ""), last="standardise")
    return Finding(
        name="stuck_at_the_start",
        severity="critical" if stuck else "warning",
        evidence=(
            f"the final loss is {last:.3f}; that of a batch collapsed to one point is "
            f"{collapsed:.3f} = log {round(math.exp(collapsed))}; z has mean cosine {cone:.2f}"
        ),
        cause=(
            "embeddings of a small network begin in one narrow cone, where the cosine has hardly a "
            "gradient; without a standardised projection they stay there"
        ),
        advice="end the projector in a batch norm",
        settings={} if standard is None else {"network.projector": standard},
        expect=f"a loss well below {collapsed:.2f} within the first epochs",
        paper="chen2020simclr",
        strength=150.0,
        explains=("full_collapse", "dimensional_collapse", "untrained_model", "high_temperature"),
    )


def projector_for_encoder(facts: Facts) -> Finding | None:
    """What is called h knows less of the labels than what is called z: they are exchanged."""
    if not facts.has("linear_accuracy", "z_linear_accuracy", "linear_error"):
        return None
    h, z, error = facts["linear_accuracy"], facts["z_linear_accuracy"], facts["linear_error"]
    if z - h < max(BEHIND, 3 * error):
        return None
    if facts.get("z_knn_accuracy", 1.0) - facts.get("knn_accuracy", 0.0) < BEHIND:
        return None  # neighbours know as much from h: it is the probe that is behind
    return Finding(
        name="projector_for_encoder",
        severity="warning",
        evidence=(
            f"a linear probe names {100 * h:.1f} % of the labels from h and {100 * z:.1f} % from "
            "z; an encoder knows more than its projector"
        ),
        cause="the projection was stored as the representation, or the two were exchanged",
        advice="evaluate the output of the encoder, before the projector",
        expect="linear accuracy of h above that of z",
        paper="cosentino2022",
        strength=(z - h) / BEHIND,
        explains=("dimensional_collapse", "leaked_label"),
    )


def kept_start(facts: Facts) -> Finding | None:
    """Rows or a linear projector are still for the most part their random start.

    Of a table of symbols and of a projector by the measured cosine with the start, seen in the lab
    `forgetting`: above 0.8 and 0.9, a note. Of any rows, also of h, by harm: from a cosine of 0.35,
    where taking the start out surely regains labels. It does not rest on a law of lr wd steps,
    whose claims are inconclusive; that number only says what decay leaves of unmoved weights,
    exp(-lr wd steps). It says nothing of weights that were given, which to keep may be the aim, nor
    of trainings of fewer than 200 steps.
    """
    if facts.get("steps", FEW_STEPS) < FEW_STEPS:
        return None
    table = bool(facts.get("symbols"))
    h = 0.0 if facts.get("start_given") else facts.get("start_overlap", 0.0)
    W = 0.0 if facts.get("projector_given") else facts.get("projector_overlap", 0.0)
    cost = facts.cost("start") if h >= PART else None
    harmful = graded(cost) != "note"
    rows, projector = harmful or (table and h >= KEPT_ROWS), W >= KEPT
    if not (rows or projector):
        return None
    decay = facts.get("decay_exponent")
    # of arrays the optimiser is not known; LARS and optimisers of others have no such number
    decays = (decay is not None or not facts.settings) and (decay or 0.0) < FORGOTTEN
    return Finding(
        name="kept_start",
        severity=graded(cost),
        evidence=(
            f"the rows of the table have cosine {h:.2f} with those before training, h0"
            if rows and table
            else f"the rows of h have cosine {h:.2f} with those before training, h0"
            if rows
            else f"the weights of the projector have cosine {W:.2f} with those before training"
        )
        + (f"; the weights of the projector have cosine {W:.2f}" if rows and projector else "")
        + (_ranks(facts) if projector else "")
        + (
            ""
            if decay is None
            else f"; lr wd steps = {decay:.2g} leaves {math.exp(-decay):.0%} of unmoved weights"
        ),
        cause="training has not forgotten its start: its steps are few or small beside the "
        "size of the start, and decay has not worn it off (judged by the measured cosine, as in "
        "the lab `forgetting`, and not by a law of lr wd steps)",
        advice=(
            f"decay more (lr wd steps of about {FORGOTTEN:g}), start smaller, or train longer"
            if decays
            else "start smaller or train longer"
            if decay is not None
            else "train longer, at a higher rate, or start smaller"
        )
        + ", and until then do not read the spectrum of these weights as learnt",
        settings=_forgetting(facts) if rows else {},
        target={"lr wd steps": FORGOTTEN} if decays else {},
        line="h0 = h0 - h0.mean(axis=0); h = h - (h * h0).sum() / (h0 * h0).sum() * h0"
        if harmful
        else "",
        expect=f"a cosine below {KEPT_ROWS if rows else KEPT:g} with the start"
        if not harmful
        else "no labels regained by taking the start out",
        paper="semantic2025",
        strength=cost.gain / COSTLY
        if harmful and cost is not None
        else max(h / KEPT_ROWS if rows else 0.0, W / KEPT),
        cost=cost,
        explains=("label_noise", "hubs", "below_raw_input", "at_chance") if harmful else (),
    )


def _ranks(facts: Facts) -> str:
    """Say the ranks of a linear projector now and at its start, if both are known."""
    if not facts.has("projector_effective_rank", "projector_start_rank"):
        return ""
    return (
        f" and effective rank {facts['projector_effective_rank']:.0f}; the start had "
        f"{facts['projector_start_rank']:.0f}"
    )


def _forgetting(facts: Facts) -> dict[str, float]:
    """The decay that leaves 8 % of the start in as many steps of AdamW, if it is at most 1."""
    decay, wd = facts.get("decay_exponent", 0.0), facts.setting("optimiser.weight_decay", 0.0)
    if facts.setting("optimiser.name") != "adamw" or not (0 < wd * FORGOTTEN <= decay < FORGOTTEN):
        return {}
    return {"optimiser.weight_decay": float(f"{wd * FORGOTTEN / decay:.2g}")}


def _others(count: int) -> str:
    """Say how many factors lost at least half as much, the worst among them."""
    if count < 2:
        return ""
    return f"; {count - 1} other factor{'s' * (count > 2)} lost at least half as much"


def suppressed_style(facts: Facts) -> Finding | None:
    """A factor that the untrained network still told, and h no longer.

    A warning where it is gone; a note where it has faded, or where the views draw it anew.
    """
    if not facts.has("lost_factor", "lost_r2", "lost_before", "lost_space"):
        return None
    before, after = facts["lost_before"], facts["lost_r2"]
    if before - after < LOST:
        return None
    # what fresh drawings of a sample change is meant to be lost
    meant = bool(facts.setting("views.fresh", False))
    d = int(facts.get("z_d", facts.get("d", 128)))
    tau = float(facts.get("tau", 0.5))
    taus = [float(f"{tau:g}")] * (d - d // 2) + [float(f"{2 * tau:g}")] * (d // 2)
    objective = with_temperature(facts.setting("objective", "") or "", taus)
    return Finding(
        name="suppressed_style",
        severity="warning" if after < GONE and not meant else "note",
        evidence=(
            f"`{facts['lost_factor']}` has R^2 {after:.2f} in {facts['lost_space']}, against "
            f"{before:.2f} in {facts['lost_from']}" + _others(int(facts["lost_count"]))
        ),
        cause=(
            "positives share the content and not the style, so that directions of style only cost "
            "alignment and are contracted"
        ),
        advice=(
            "raise the temperature of some dimensions above that of the others, so that style has "
            "room there; or use the representation before the projector"
        ),
        settings={} if objective is None else {"objective": objective},
        expect=f"R^2 of `{facts['lost_factor']}` above {after + LOST / 2:.2f}",
        paper="rusak2022",
        strength=(before - after) / LOST,
    )


def batch_statistics(facts: Facts) -> Finding | None:
    """Means of consecutive rows vary less than chance lets them: batches were normalised alone."""
    if not facts.has("block_ratio", "block_size", "block_score"):
        return None
    ratio, score = facts["block_ratio"], facts["block_score"]
    if ratio > PINNED or score > -6:
        return None
    size = facts["block_size"]
    return Finding(
        name="batch_statistics",
        severity="warning",
        evidence=(
            f"means of {size} consecutive rows vary {ratio:.2f} times as much as chance has it "
            f"({-score:.0f} standard errors too little)"
        ),
        cause=(
            "rows were embedded with the statistics of their own batch (a batch norm in training "
            "mode), so that each depends on the others of its batch"
        ),
        advice="switch the network to evaluation (`model.eval()`) and embed again",
        expect="means of consecutive rows that vary as chance has it",
        paper="ioffe2015batchnorm",
        strength=260.0,
        explains=(
            *("class_blind", "mispaired_views", "strong_views", "low_temperature"),
            *("high_temperature", "untrained_model", "label_noise", "leaked_label"),
            *("hardly_trained", "projector_for_encoder", "stuck_at_the_start", *SYMPTOMS),
        ),
        p=0.5 * math.erfc(-score / math.sqrt(2)),
        target={"evaluation": "running statistics"},
    )


def class_blind(facts: Facts) -> Finding | None:
    """Samples are told apart better than their classes: what a batch of one class teaches."""
    if not facts.training or not facts.has("pair_nearer"):
        return None
    costs = [one for one in (facts.cost("untrained"), facts.cost("input")) if one is not None]
    cost = min(costs, key=lambda one: one.gain) if costs else None
    told = facts["pair_nearer"] >= TOLD_APART
    worse = told and -cost.high >= LOSES if cost is not None else False
    hardest, all_of, knn = (facts.get(k) for k in ("false_hardest", "false_all", "knn_accuracy"))
    strange = (
        told
        and None not in (hardest, all_of, knn)
        and knn >= 2 * all_of
        and hardest - all_of < ALIEN * (knn - all_of)
    )
    # a network that surely tells far more labels than its input is not blind to them
    if cost is None or not (worse or (strange and cost.low < LEARNT)):
        return None
    return Finding(
        name="class_blind",
        severity="warning",
        evidence=(
            f"a positive is nearer than {100 * facts['pair_nearer']:.1f} % of the other samples"
            f"; yet neighbours predict {cost.after:.1%} of the labels, and {cost.before:.1%} from "
            "the raw input or the untrained network"
            + (
                f"; of the hardest negatives {hardest:.1%} are of the same class"
                if hardest is not None
                else ""
            )
        ),
        cause="the loss was solved by what differs inside a class: batches of one class or one "
        "source, or views that keep a sample's own marks and remove its class",
        advice="shuffle the data so that each batch holds all classes and sources",
        expect="more labels than from the raw input and the untrained network",
        paper="arora2019theoretical",
        strength=30.0,
        explains=("label_noise", "stuck_at_the_start", *SYMPTOMS),
        target={"batches": "mixed"},
    )
