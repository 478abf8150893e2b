"""What is embedded looks like what was trained on, wherever a run embeds."""

import numpy as np
import pytest
import torch

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.data import open_data
from chiaroscuro.engine import (
    Pairs,
    embed,
    examine,
    held_out,
    load_networks,
    read_settings,
    snapshots,
    train,
    watch,
)

# with strength 0 a view is random in nothing, so that training has seen exactly this
VIEW = "SimCLR(size=16, strength=0.0, mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3))"
N = 24


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on pictures of 32 pixels, seen in 16 and normalised; and what its callbacks saw."""
    folder = tmp_path_factory.mktemp("embedding")
    draw = np.random.default_rng(0)
    labels, split = np.arange(N) % 2, np.arange(N) // 2 % 2
    pictures = draw.integers(0, 120, (N, 32, 32, 3)) + 100 * labels[:, None, None, None]
    np.savez(folder / "p.npz", images=pictures.astype(np.uint8), labels=labels, split=split)
    settings = read_settings(
        "simclr",
        [
            *("epochs=1", "batch=4", "schedule.warmup=0", f"views.first={VIEW}"),
            f"data.source={folder / 'p.npz'}",
            "network.encoder=ResNet(9, 0.125, stem='strided')",
            "network.projector=Projector(d=8)",
        ],
    )
    seen = {"watch": [], "held_out": []}
    callbacks = [
        watch(lambda h: seen["watch"].append(np.array(h)) or {}, rows=N),
        held_out(lambda a, b: seen["held_out"].extend((a[0], b[0])) or {}, rows=N),
        snapshots(rows=N),
    ]
    return train(settings, folder / "run", callbacks), settings, seen


def as_trained(run, settings):
    """h of what training showed the network."""
    data = open_data(settings.data.source)
    with torch.no_grad():
        return load_networks(run).encode(Pairs.of(settings, data)(np.arange(N), 0)[0]).numpy()


def close(found, right):
    np.testing.assert_allclose(found, right, rtol=1e-3, atol=1e-4)


def test_a_run_embeds_what_it_was_trained_on(trained):
    run, settings, _ = trained
    right = as_trained(run, settings)
    close(embed(run).h, right)
    close(examine(run).h, right)
    data = open_data(settings.data.source)
    close(embed(load_networks(run), data, views=settings.views).h, right)
    assert np.abs(embed(load_networks(run), data).h - right).max() > 0.01


def test_callbacks_embed_as_the_run_does(trained):
    run, _, seen = trained
    whole = embed(run)
    of_train = whole.h[whole.split == 0]
    close(seen["watch"][0], of_train)
    close(seen["watch"][1], whole.z[whole.split == 0])
    last = Embeddings.load(run.embeddings("epoch-0001"))
    close(last.h, whole.h)
    close(Embeddings.load(run.embeddings("epoch-0000")).h, whole.layers["untrained"])
