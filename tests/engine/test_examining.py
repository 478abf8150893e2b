"""What a diagnosis sees of a run whose first encoder takes symbols, not samples."""

import chiaroscuro
from chiaroscuro.engine import examine, read_settings, train


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
