"""What is embedded looks like what was trained on, wherever a run embeds."""

import sys
import types
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.data import open_data
from chiaroscuro.engine import (
    Moment,
    Pairs,
    build,
    embed,
    examine,
    held_out,
    load_networks,
    read_settings,
    snapshots,
    train,
    watch,
)
from chiaroscuro.errors import InputError

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
    close(examine(run).embeddings.h, right)
    data = open_data(settings.data.source)
    close(embed(load_networks(run), data, views=settings.views).h, right)
    assert np.abs(embed(load_networks(run), data).h - right).max() > 0.01


def test_callbacks_embed_as_the_run_does(trained):
    run, _, seen = trained
    whole = embed(run)
    of_train = whole.h[whole.split == 0]
    close(seen["watch"][0], of_train)
    close(seen["watch"][1], whole.z[whole.split == 0])
    assert [len(h) for h in seen["held_out"]] == [8, 4]
    for row in np.concatenate(seen["held_out"]):
        assert np.abs(of_train - row).max(axis=1).min() < 1e-4
    last = Embeddings.load(run.embeddings("epoch-0001"))
    close(last.h, whole.h)
    close(Embeddings.load(run.embeddings("epoch-0000")).h, whole.layers["untrained"])


# ---- looking on while training goes on ----


def looked_at(settings, data):
    """The rows, by id, that `held_out` hands to its measure, and what is in them."""
    got = []
    look = held_out(lambda a, b: got.extend((a, b)) or {"asked": len(b[1])}, rows=50)
    networks = build(settings.network, 0)
    moment = Moment(1, 1, 0, 0.0, settings, networks, data, None)
    return look(moment), got


ARRAYS = ("data.source=unused.npz", "views.first=Jitter(noise=0.1)")
ENCODER = "network.encoder=MLP(d_in=2, d=2, depth=1)"


def test_looking_on_never_sees_the_test_side():
    """Each sample is its own number; h of a linear encoder tells which were embedded."""
    settings = read_settings("simclr", [*ARRAYS, ENCODER])
    x = np.c_[np.arange(60), np.ones(60)].astype(np.float32)
    given = {"x": x, "labels": np.arange(60) % 3, "split": np.arange(60) // 30}
    numbers, got = looked_at(settings, open_data(given))
    assert numbers == {"asked": 9}
    known, asked = got
    assert np.bincount(asked[1]).tolist() == [3, 3, 3]
    right = embed(build(settings.network, 0), {"x": x}).h
    rows = [np.abs(right - h).sum(axis=1).argmin() for h in np.concatenate([known[0], asked[0]])]
    assert sorted(rows) == list(range(30))
    only_test = open_data(given).part("test")
    assert looked_at(settings, only_test)[0] == {}


def test_looking_on_keeps_groups_whole_and_needs_labels():
    settings = read_settings("simclr", [*ARRAYS, ENCODER])
    x = np.c_[np.arange(40) // 4, np.ones(40)].astype(np.float32)  # a group looks the same
    given = {"x": x, "labels": np.arange(40) // 4 % 2, "groups": np.arange(40) // 4}
    numbers, (known, asked) = looked_at(settings, open_data(given))
    assert numbers["asked"] == 16
    assert not {tuple(h) for h in known[0]} & {tuple(h) for h in asked[0]}
    assert looked_at(settings, open_data({"x": x}))[0] == {}
    assert looked_at(settings, open_data(given | {"groups": np.zeros(40, int)}))[0] == {}


# ---- what is said of the training ----


class Classifier(nn.Sequential):
    """A network as timm makes them."""

    default_cfg: ClassVar = {"input_size": (3, 32, 32), "classifier": "3"}

    def __init__(self):
        super().__init__(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 9))

    def reset_classifier(self, n):
        self[3] = nn.Identity()


@pytest.mark.parametrize("pretrained", [True, False])
def test_a_pretrained_control_is_called_so(tmp_path, monkeypatch, pretrained):
    """The control of an encoder with weights from elsewhere is no network with fresh weights."""
    timm = types.ModuleType("timm")
    timm.list_models = lambda: ["small"]
    timm.create_model = lambda name, pretrained, in_chans: Classifier()
    monkeypatch.setitem(sys.modules, "timm", timm)
    torch.save(Classifier().state_dict(), tmp_path / "w.pt")
    np.savez(tmp_path / "p.npz", images=np.zeros((4, 32, 32, 3), np.uint8))
    weights = f", weights='{tmp_path / 'w.pt'}'" * pretrained
    sets = [
        *("epochs=1", "batch=4", f"data.source={tmp_path / 'p.npz'}", "schedule.warmup=0"),
        f"network.encoder=from_timm('small'{weights})",
    ]
    facts = embed(train(read_settings("simclr", sets), tmp_path / "run")).facts()
    kind = "pretrained" if pretrained else "fresh weights"
    assert facts["untrained"] == f"before training ({kind})"
    assert facts["trained_on.rows"] == "4"
    assert "trained_on.test_rows" not in facts


def test_samples_that_an_encoder_does_not_take_are_a_sentence():
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten())
    images = np.zeros((5, 8, 8, 2), np.uint8)
    with pytest.raises(
        InputError, match=r"`Sequential` needs .* \(5, 2, 8, 8\) in float32; it rai"
    ):
        embed(net, {"images": images})
