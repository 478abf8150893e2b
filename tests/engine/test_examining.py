"""What a diagnosis sees of a run whose first encoder takes symbols, not samples."""

import numpy as np
import pytest
import torch
from torch import nn

import chiaroscuro
from chiaroscuro.engine import (
    StopTraining,
    continued,
    cosine,
    examine,
    open_run,
    read_settings,
    train,
)


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
    small = [
        "network.encoder=ResNet(9, 0.125, stem='strided')",
        linear,
        "epochs=1",
        "batch=64",
        "saving.record=1",
    ]
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


def test_rows_of_a_table_whose_symbols_never_occur_do_not_count_as_kept():
    larger = ["network.encoder=Table(n_symbols=200, d=8)", "optimiser.weight_decay=0.5"]
    run = train(read_settings("symbol-context-tokens", ["epochs=40", "optimiser.lr=0.01", *larger]))
    found = chiaroscuro.diagnose(run, rows=64)
    w, w0 = (nets.encoders[0].weight[:16].detach() for nets in (run.networks, run.untrained))
    used = float((w * w0).sum() / (w.norm() * w0.norm()))
    assert found.measures["start_overlap"] == pytest.approx(used)
    assert used < 0.8 < 0.9 < found.measures["encoder_overlap"]
    assert "kept_start" not in [one.name for one in found.findings]
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
        saving={"record": 1},
    )
    found = chiaroscuro.diagnose(run).measures
    assert found["steps"] == 30  # of 60
    of_the_first_half = sum(cosine(step, 60) for step in range(30))
    assert found["decay_exponent"] == pytest.approx(0.01 * 0.5 * of_the_first_half)


def test_decay_is_summed_by_the_rates_that_were_used_before_and_after_a_resumption(tmp_path):
    decays = ["optimiser.lr=1e-3", "optimiser.weight_decay=0.5", "saving.record=1", "epochs=3"]
    falling = ["schedule.name=cosine", "schedule.warmup=0"]
    folder = tmp_path / "run"
    train(read_settings("symbol-context-tokens", [*decays, *falling]), folder)
    train(continued(folder, ["epochs=6"]), folder, resume=True)
    found = chiaroscuro.diagnose(folder).measures
    half = found["steps"] // 2
    factors = [cosine(step, half) for step in range(half)]
    factors += [cosine(step, 2 * half) for step in range(half, 2 * half)]
    assert found["decay_exponent"] == pytest.approx(0.5 * 1e-3 * sum(factors))


def test_fine_tuning_that_moved_its_weights_is_no_untrained_model():
    settings = {"optimiser": {"name": "adamw", "lr": 1e-5}}
    encoder = trained("MLP(d_in=5, d=8)", epochs=20).networks.encoders[0]
    tuned = chiaroscuro.diagnose(trained(encoder, **settings))
    assert tuned.measures["start_given"]
    assert tuned.measures["untrained_agreement"] > 0.99
    assert 1e-9 < tuned.measures["encoder_turned"] < 1e-3
    assert "untrained_model" not in {one.name for one in tuned.findings}
    still = chiaroscuro.diagnose(trained(encoder, optimiser={"name": "adamw", "lr": 0.0}))
    assert "untrained_model" in {one.name for one in still.findings}


def test_an_encoder_of_which_nothing_moved_is_untrained_also_with_batch_norm():
    still = ["optimiser={name = 'adamw', lr = 0.0, weight_decay = 0.0}", "epochs=10", "batch=64"]
    small = "network.encoder=ResNet(9, 0.125, stem='strided')"
    found = chiaroscuro.diagnose(train(read_settings("digits", [small, *still])))
    assert found.measures["untrained_agreement"] < 0.97  # running statistics move h
    assert found.measures["encoder_turned"] < 1e-9
    assert found.findings[0].name == "untrained_model"
    assert "the trained parameters of the encoder have not moved" in found.findings[0].evidence


class OnlyBias(Linear):
    def __init__(self):
        super().__init__()
        self.layer.weight.requires_grad_(False)


def test_training_of_biases_alone_is_training():
    found = chiaroscuro.diagnose(trained(OnlyBias(), optimiser={"name": "adamw", "lr": 0.1}))
    assert found.measures["encoder_turned"] > 1e-9
    assert "encoder_overlap" not in found.measures
    assert "untrained_model" not in {one.name for one in found.findings}


class Unit(nn.Module):
    """A projector that bends inside its `forward`."""

    def __init__(self, bend):
        super().__init__()
        self.layer, self.bend = nn.Linear(8, 4), bend

    def forward(self, h):
        return self.bend(self.layer(h))


class Same(nn.Flatten):
    """A layer of a kind that is not known, though it is linear."""


class Cast(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, h):
        return self.layer(h.float())


@pytest.mark.parametrize(
    "projector",
    [
        nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4)),
        nn.Sequential(nn.Linear(8, 4), nn.LayerNorm(4)),
        Unit(torch.tanh),
        Unit(torch.relu),
        Unit(nn.functional.normalize),
        nn.Sequential(Same(), nn.Linear(8, 4)),
        Cast(),
    ],
)
def test_a_projector_without_affine_maps_is_left_out_and_the_rest_is_diagnosed(projector):
    found = chiaroscuro.diagnose(trained("MLP(d_in=5, d=8)", network={"projector": projector}))
    assert {"effective_rank", "z_effective_rank", "movement_ratio"} <= set(found.measures)
    assert not {"projector_start_rank", "regions_visited"} & set(found.measures)


@pytest.mark.parametrize("more", [{"average": 0.9}, {"projector": "Projector(d=4, depth=1)"}])
def test_a_projector_is_compared_by_its_raw_weights_also_if_averaged_or_normalised(more):
    network = {"projector": "Projector(d=4, depth=1, last='unit')", **more}
    run = trained("MLP(d_in=5, d=8)", network=network)
    w, w0 = (nets.projectors[0].layers[0].weight.detach() for nets in (run.networks, run.untrained))
    cosine = float((w * w0).sum() / (w.norm() * w0.norm()))
    assert chiaroscuro.diagnose(run).measures["projector_overlap"] == pytest.approx(cosine)


def test_a_run_folder_tells_a_given_projector_from_a_given_encoder(tmp_path):
    asked = {"epochs": 1, "batch": 64, "optimiser": {"name": "adamw", "lr": 1e-4}}
    small = {"encoder": "ResNet(9, 0.125, stem='strided')", "projector": "Projector(d=8, depth=1)"}
    settings = {"data": {"source": "digits"}, "network": small, **asked}
    before = train(settings)
    projector, encoder = before.networks.projectors[0], before.networks.encoders[0]
    for given in ({"projector": projector}, {"encoder": encoder}, {}):
        kept = {key: text for key, text in small.items() if key not in given}
        folder = tmp_path / "-".join(["run", *given])
        for out in (None, folder):
            run = train({**settings, "network": kept}, out, **given)
            assert open_run(run).given == set(given)


def test_a_folder_without_a_record_has_kept_first_weights_of_its_encoder(tmp_path):
    settings = read_settings("symbol-context-tokens", ["epochs=1"])
    train(settings, tmp_path / "run", encoder=chiaroscuro.models.Table(16, 8))
    (tmp_path / "run" / "objects.json").unlink()
    assert open_run(tmp_path / "run").given == {"encoder"}


def test_steps_of_a_run_without_history_are_those_of_its_checkpoint(tmp_path):
    settings = read_settings("symbol-context-tokens", ["epochs=1"])
    steps = chiaroscuro.diagnose(train(settings, tmp_path / "run")).measures["steps"]
    (tmp_path / "run" / "history.jsonl").unlink()
    assert chiaroscuro.diagnose(tmp_path / "run").measures["steps"] == steps > 0


class Half(Linear):
    """An encoder in bfloat16."""

    def __init__(self):
        super().__init__()
        self.layer.bfloat16()

    def forward(self, x):
        return self.layer(x.bfloat16()).float()


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 8, dtype=torch.cfloat))

    def forward(self, x):
        return (x.to(self.weight.dtype) @ self.weight).abs()


@pytest.mark.parametrize("encoder", [Half(), Complex()])
def test_weights_of_other_types_are_compared_and_have_no_neural_kernel(encoder):
    found = chiaroscuro.diagnose(trained(encoder)).measures
    assert 0.5 < found["encoder_overlap"] < 1
    assert "kernel_alignment" not in found
