"""What `kept_start` says, and of whom it says nothing."""

import pytest

from chiaroscuro.diagnostics import Facts, findings
from chiaroscuro.diagnostics.advice.training import kept_start, untrained_model

DECAYED = {"optimiser.name": "adamw", "optimiser.weight_decay": 0.01}
TABLE = {"start_overlap": 0.88, "symbols": True, "steps": 6000, "decay_exponent": 0.06}


def test_rows_of_a_table_are_named_from_a_cosine_of_0_8_and_other_rows_from_0_9():
    found = kept_start(Facts(TABLE, DECAYED))
    assert "the rows of the table have cosine 0.88" in found.evidence
    assert found.expect == "a cosine below 0.8 with the start"
    assert found.settings == {"optimiser.weight_decay": 0.42}
    assert found.strength == pytest.approx(1.1)
    assert kept_start(Facts({**TABLE, "start_overlap": 0.79}, DECAYED)) is None
    assert kept_start(Facts({**TABLE, "symbols": None}, DECAYED)) is None
    assert kept_start(Facts({"start_overlap": 0.91})).expect == "a cosine below 0.9 with the start"


@pytest.mark.parametrize("more", [{"start_given": True}, {"steps": 199}])
def test_a_start_that_was_given_or_a_short_training_is_not_blamed(more):
    assert kept_start(Facts({**TABLE, **more}, DECAYED)) is None


def test_the_advice_speaks_of_decay_only_where_it_acts_as_lr_wd_steps():
    without = {name: value for name, value in TABLE.items() if name != "decay_exponent"}
    lars = kept_start(Facts(without, {"optimiser.name": "lars"}))
    assert lars.advice.startswith("train longer, at a higher rate, or start smaller")
    assert not lars.target
    assert not lars.settings
    for facts in (Facts(TABLE, DECAYED), Facts(without)):  # of arrays nothing is known
        assert "lr wd steps of about 2.5" in kept_start(facts).advice


def test_ranks_of_the_projector_are_told_now_and_before():
    weights = {"projector_overlap": 0.95, "projector_effective_rank": 8.2}
    evidence = kept_start(Facts({**weights, "projector_start_rank": 7.1})).evidence
    assert "0.95 with their start and effective rank 8; the start had 7" in evidence
    folded = Facts({**weights, "projector_start_rank": 7.1, "projector_folded": True})
    assert "projector (its batch norm folded in)" in kept_start(folded).evidence


def test_weights_that_were_given_were_loaded():
    drawn, given = (
        untrained_model(Facts({"untrained_agreement": 0.99, "start_given": one}))
        for one in (False, True)
    )
    assert drawn.cause.startswith("weights were not loaded")
    assert "not loaded" not in given.cause


def test_symbols_are_no_copies_of_each_other():
    twins = {"near_twins": 1.0, "exact_duplicates": 256, "n": 256}
    assert [one.name for one in findings(Facts(twins))] == ["duplicated_samples"]
    assert findings(Facts({**twins, "symbols": True})) == []
