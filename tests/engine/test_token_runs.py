"""Runs whose encoders take symbols and contexts can be embedded and watched."""

import numpy as np

from chiaroscuro.engine import embed, read_settings, snapshots, train


def test_either_side_of_a_run_on_tokens_can_be_embedded(tmp_path):
    settings = read_settings("symbol-context-tokens", ["epochs=1"])
    run = train(settings, tmp_path / "run", [snapshots(rows=30, every=1)])
    symbols, contexts = embed(run), embed(run, side=1)
    assert symbols.h.shape == contexts.h.shape
    assert len(np.unique(symbols.h, axis=0)) <= 16  # one row for each symbol
    assert len(np.unique(contexts.h, axis=0)) > 16
    assert sorted(path.name for path in (run.folder / "embeddings").iterdir()) == [
        "epoch-0000.npz",
        "epoch-0001.npz",
        "rows.npz",
    ]
