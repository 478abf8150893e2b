"""What a diagnosis sees of a run whose first encoder takes symbols, not samples."""

import numpy as np
import pytest
import torch
from torch import nn

import chiaroscuro
from chiaroscuro.engine import StopTraining, cosine, examine, read_settings, train


def test_a_run_of_symbols_and_contexts_can_be_diagnosed(tmp_path):
    settings = read_settings("symbol-context-tokens", ["epochs=1"])
    run = train(settings, tmp_path / "run")
    seen = examine(run, rows=100)
    assert seen.embeddings.h is None
    assert seen.embeddings.h1.shape == seen.embeddings.z2.shape == (100, 8)
    assert seen.inputs.shape == (64,)
    diagnosis = chiaroscuro.diagnose(run)
    assert diagnosis.findings[0].name == "hardly_trained"
    assert diagnosis.measures["pair_nearer"] > 0


def test_a_diagnosis_says_how_much_of_its_start_a_run_has_kept():
    linear = "network.projector=Projector(d=8, depth=1, last='none')"
    small = ["network.encoder=ResNet(9, 0.125, stem='strided')", linear, "epochs=1", "batch=64"]
    decayed = ["optimiser={name = 'adamw', lr = 1e-2, weight_decay = 20.0}", "schedule.warmup=0"]
    kept, gone = (
        chiaroscuro.diagnose(train(read_settings("digits", [*small, *extra]))).measures
        for extra in (["optimiser={name = 'adamw', lr = 1e-5}", "schedule.warmup=0"], decayed)
    )
    assert kept["projector_overlap"] > 0.99
    assert abs(kept["projector_start_rank"] - kept["projector_effective_rank"]) < 0.1
    assert gone["projector_overlap"] < 0.7 < kept["projector_overlap"]
    # half of lr wd steps under a cosine; decay leaves exp(-x) of what no gradient moves
    steps = gone["steps"]
    assert abs(gone["decay_exponent"] / (0.5 * 1e-2 * 20.0 * steps) - 1) < 0.05


def test_rows_of_a_table_are_compared_with_their_start():
    settings = read_settings("symbol-context-tokens", ["epochs=1"])
    found = chiaroscuro.diagnose(train(settings))
    assert found.measures["start_overlap"] > 0.99
    assert "projector_overlap" not in found.measures  # there are no weights between h and z


def test_all_rows_of_a_table_are_compared_also_those_of_no_sample_looked_at():
    larger = "network.encoder=Table(n_symbols=60, d=8)"
    run = train(read_settings("symbol-context-tokens", ["epochs=40", "optimiser.lr=0.01", larger]))
    found = chiaroscuro.diagnose(run, rows=64)
    w, w0 = (nets.encoders[0].weight.detach() for nets in (run.networks, run.untrained))
    cosine = float((w * w0).sum() / (w.norm() * w0.norm()))
    assert found.measures["start_overlap"] == pytest.approx(cosine)
    assert "duplicated_samples" not in [one.name for one in found.findings]  # equal symbols


class Linear(nn.Module):
    """An encoder of five numbers."""

    def __init__(self, learns=True):
        super().__init__()
        self.layer = nn.Linear(5, 8).requires_grad_(learns)

    def forward(self, x):
        return self.layer(x)


def trained(encoder=None, callbacks=(), **settings):
    rows = np.random.default_rng(0).normal(size=(96, 5)).astype(np.float32)
    table = {"epochs": 2, "batch": 32, "optimiser": {"name": "adamw", "lr": 0.01}, **settings}
    return train(
        table,
        data=rows,
        encoder=encoder,
        callbacks=callbacks,
        view=lambda x: x + 0.1 * torch.randn_like(x),
    )


def test_a_frozen_encoder_has_no_neural_kernel_and_is_not_accused_of_being_its_start():
    found = chiaroscuro.diagnose(trained(Linear(learns=False)))
    kept = {"untrained_agreement", "start_overlap", "encoder_overlap", "kernel_alignment"}
    assert not kept & set(found.measures)
    assert not {"untrained_model", "kept_start"} & {one.name for one in found.findings}


def test_averaged_weights_are_not_taken_for_frozen_ones():
    found = chiaroscuro.diagnose(trained(Linear(), network={"average": 0.9}))
    assert 0 < found.measures["encoder_overlap"] < 1
    assert found.measures["untrained_agreement"] <= 1


def test_of_a_network_with_batch_norm_weights_are_compared_and_not_h():
    still = ["optimiser={name = 'adamw', lr = 0.0, weight_decay = 0.0}", "epochs=1", "batch=64"]
    small = "network.encoder=ResNet(9, 0.125, stem='strided')"
    found = chiaroscuro.diagnose(train(read_settings("digits", [small, *still]))).measures
    assert "start_overlap" not in found
    assert found["encoder_overlap"] == pytest.approx(1)


@pytest.mark.parametrize("encoder", [Linear(), "MLP(d_in=5, d=8)"])
def test_weights_that_were_given_are_told_from_those_that_were_drawn(encoder):
    drawn = isinstance(encoder, str)
    assert chiaroscuro.diagnose(trained(encoder)).measures.get("start_given", False) != drawn


def test_a_run_folder_remembers_that_weights_were_given(tmp_path):
    """As `--init` gives them; the settings name the encoder by a text all the same."""
    settings = read_settings("symbol-context-tokens", ["epochs=1"])
    train(settings, tmp_path / "run", encoder=chiaroscuro.models.Table(16, 8))
    assert chiaroscuro.diagnose(tmp_path / "run").measures["start_given"]


def test_decay_is_summed_over_the_steps_made_of_a_schedule_that_goes_further():
    def stop(moment):
        if moment.epoch == 9:
            raise StopTraining("half of it")

    run = trained(
        "MLP(d_in=5, d=8)",
        callbacks=[stop],
        epochs=20,
        optimiser={"name": "adamw", "lr": 0.01, "weight_decay": 0.5},
        schedule={"name": "cosine", "warmup": 0},
    )
    found = chiaroscuro.diagnose(run).measures
    assert found["steps"] == 30  # of 60
    of_the_first_half = sum(cosine(step, 60) for step in range(30))
    assert found["decay_exponent"] == pytest.approx(0.01 * 0.5 * of_the_first_half)
