"""What `kept_start` and `untrained_model` say, and of whom they say nothing."""

import numpy as np
import pytest
import torch
from torch import nn

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.diagnostics import Context, Facts, findings
from chiaroscuro.diagnostics.advice.training import kept_start, untrained_model
from chiaroscuro.diagnostics.assembly.starts import of_symbols, start_measures

DECAYED = {"optimiser.name": "adamw", "optimiser.weight_decay": 0.01}
TABLE = {"start_overlap": 0.88, "symbols": True, "steps": 6000, "decay_exponent": 0.06}
PROJECTOR = {"projector_overlap": 0.95, "projector_effective_rank": 8.2}
PROJECTOR |= {"projector_start_rank": 7.1}
PARTS = {"of": "knn_accuracy", "before": 0.5, "after": 0.6, "gain": 0.1, "low": 0.08, "high": 0.12}
HARM = {f"cure_start_{name}": value for name, value in {**PARTS, "n": 800}.items()}


def test_rows_of_a_table_are_named_from_a_cosine_of_0_8():
    found = kept_start(Facts(TABLE, DECAYED))
    assert "the rows of the table have cosine 0.88" in found.evidence
    assert "lr wd steps = 0.06 leaves 94% of unmoved weights" in found.evidence
    assert found.severity == "note"
    assert found.expect == "a cosine below 0.8 with the start"
    assert found.settings == {"optimiser.weight_decay": 0.42}
    assert found.strength == pytest.approx(1.1)
    assert kept_start(Facts({**TABLE, "start_overlap": 0.79}, DECAYED)) is None


def test_h_of_a_network_is_named_only_where_its_start_costs_labels():
    assert kept_start(Facts({"start_overlap": 0.99, "steps": 6000})) is None
    found = kept_start(Facts({"start_overlap": 0.5, "steps": 6000, **HARM}))
    assert found.severity == "warning"
    assert "the rows of h have cosine 0.50" in found.evidence
    assert found.expect == "no labels regained by taking the start out"
    assert found.strength == pytest.approx(0.1 / 0.03)
    assert kept_start(Facts({"start_overlap": 0.34, "steps": 6000, **HARM})) is None


@pytest.mark.parametrize("more", [{"start_given": True}, {"steps": 199}])
def test_a_start_that_was_given_or_a_short_training_is_not_blamed(more):
    assert kept_start(Facts({**TABLE, **more}, DECAYED)) is None
    assert kept_start(Facts({**TABLE, **HARM, **more}, DECAYED)) is None


def test_the_advice_speaks_of_decay_only_where_it_acts_as_lr_wd_steps():
    without = {name: value for name, value in TABLE.items() if name != "decay_exponent"}
    lars = kept_start(Facts(without, {"optimiser.name": "lars"}))
    assert lars.advice.startswith("train longer, at a higher rate, or start smaller")
    assert not lars.target
    assert not lars.settings
    for facts in (Facts(TABLE, DECAYED), Facts(without)):  # of arrays nothing is known
        assert "lr wd steps of about 2.5" in kept_start(facts).advice


def test_more_decay_is_not_advised_where_there_is_enough():
    found = kept_start(Facts({**TABLE, "decay_exponent": 4.0}, DECAYED))
    assert found.advice.startswith("start smaller or train longer")
    assert not found.target
    assert not found.settings


def test_ranks_of_the_projector_are_told_now_and_before():
    found = kept_start(Facts(PROJECTOR))
    assert "cosine 0.95 with those before training and effective rank 8; the start had 7" in (
        found.evidence
    )
    assert found.expect == "a cosine below 0.9 with the start"
    unknown = kept_start(Facts({"projector_overlap": 0.95}))  # of one that ends in unit length
    assert "the weights of the projector have cosine 0.95" in unknown.evidence
    assert "rank" not in unknown.evidence
    both = kept_start(Facts({**TABLE, **PROJECTOR}, DECAYED)).evidence
    assert "0.88 with those before training" in both
    assert "the weights of the projector have cosine 0.95 and effective rank 8" in both


def test_a_projector_gets_no_setting_that_decays_the_whole_network():
    asked = {**PROJECTOR, "steps": 6000, "decay_exponent": 0.06}
    assert kept_start(Facts(asked, DECAYED)).settings == {}


def test_a_projector_that_was_given_is_not_blamed():
    assert kept_start(Facts({**PROJECTOR, "projector_given": True})) is None
    assert kept_start(Facts({**PROJECTOR, "start_given": True})) is not None


def test_numbers_that_are_none_give_no_finding():
    nan = float("nan")
    measures = {"projector_overlap": nan, "start_overlap": nan, "symbols": True}
    assert kept_start(Facts(measures)) is None
    assert untrained_model(Facts({"untrained_agreement": nan, "encoder_turned": nan})) is None


def test_weights_that_were_given_and_moved_are_not_called_untrained():
    said = {"untrained_agreement": 0.99, "encoder_turned": 1e-4}
    assert untrained_model(Facts({**said, "start_given": True})) is None
    assert "training made too few or too small steps" in untrained_model(Facts(said)).cause
    still = untrained_model(Facts({**said, "encoder_turned": 1e-17, "start_given": True}))
    assert still.cause == "training made no steps, or steps at a learning rate of 0 or nearly so"
    arrays = untrained_model(Facts({"untrained_agreement": 0.99}))
    assert arrays.cause.startswith("weights were not loaded")


def test_weights_that_did_not_move_are_untrained_whatever_h_says():
    found = untrained_model(Facts({"untrained_agreement": 0.6, "encoder_turned": 0.0}))
    assert "the trained parameters of the encoder have not moved" in found.evidence
    assert {"at_chance", "suppressed_style", "below_untrained"} <= set(found.explains)


def test_symbols_are_no_copies_of_each_other():
    twins = {"near_twins": 1.0, "exact_duplicates": 256, "n": 256}
    assert [one.name for one in findings(Facts(twins))] == ["duplicated_samples"]
    assert findings(Facts({**twins, "symbols": True})) == []


# ---- the measures ----


def measured(model, first, **more):
    h = np.random.default_rng(0).normal(size=(80, 4))
    alone = Embeddings(h=h, layers={"untrained": h})
    return start_measures(alone, Context(model=model, first_model=first, **more), np.arange(80))


def with_nan():
    module = nn.Linear(5, 4)
    module.weight.data[0] = float("nan")
    return module


@pytest.mark.parametrize(
    "model",
    [
        nn.Linear(5, 4, device="meta"),
        nn.Linear(5, 4, bias=False),
        nn.Linear(1, 4),
        nn.LazyLinear(4),
        with_nan(),
    ],
)
def test_weights_that_cannot_be_compared_have_no_overlap(model):
    found = measured(model, nn.Linear(5, 4))
    assert found["untrained_agreement"] == pytest.approx(1)
    assert not {"encoder_overlap", "encoder_turned"} & set(found)


def test_weights_of_two_precisions_are_compared():
    first = nn.Linear(5, 4)
    half = nn.Linear(5, 4).bfloat16()
    half.load_state_dict(first.state_dict())
    assert measured(half, first)["encoder_overlap"] == pytest.approx(1, abs=1e-4)


def test_rows_that_only_decay_shortened_do_not_count_unless_there_are_no_others():
    torch.manual_seed(0)
    first, table, shorter = (nn.Embedding(30, 8) for _ in range(3))
    shorter.weight.data = 0.5 * first.weight.data
    table.weight.data[10:] = 0.5 * first.weight.data[10:]
    w, w0 = table.weight[:10].detach(), first.weight[:10].detach()
    used = float((w * w0).sum() / (w.norm() * w0.norm()))
    symbols = torch.arange(30)
    found = measured(table, first, inputs=symbols)
    assert found["start_overlap"] == pytest.approx(used)
    assert found["encoder_overlap"] > used + 0.1
    assert measured(shorter, first, inputs=symbols)["start_overlap"] == pytest.approx(1)


def test_a_projector_of_two_layers_has_no_overlap():
    deep, flat = (nn.Sequential(*[nn.Linear(4, 4) for _ in range(k)]) for k in (2, 1))
    assert "projector_overlap" not in measured(None, None, projector=deep, first_projector=deep)
    found = measured(None, None, projector=flat, first_projector=flat)
    assert found["projector_overlap"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("inputs", "symbols"),
    [
        ([1, 2, 3], True),
        (torch.zeros(4, dtype=torch.long, device="meta"), True),
        (torch.zeros(4, dtype=torch.bfloat16), False),
        (torch.zeros(4, requires_grad=True), False),
        (np.zeros(3, bool), False),
    ],
)
def test_symbols_are_told_from_other_samples(inputs, symbols):
    assert of_symbols(inputs) == symbols
