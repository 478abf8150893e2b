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
