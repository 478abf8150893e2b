"""Snapshots of a training: the same rows and views at every epoch, joined by id."""

import numpy as np
import pytest

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.engine import embed, load_networks, read_settings, train
from chiaroscuro.engine.snapshots import FRAMES, snapshots
from chiaroscuro.errors import InputError

SMALL = ("network.encoder='ResNet(9, 0.125, stem=\"strided\")'", "batch=512", "epochs=3")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("snapshots") / "run"
    return train(read_settings("digits", SMALL), folder, [snapshots(rows=50, every=2)])


def frame(run, epoch):
    return Embeddings.load(run.embeddings(f"epoch-{epoch:04d}"))


def test_every_second_epoch_the_start_and_the_last(run):
    names = sorted(path.name for path in (run.folder / "embeddings").iterdir())
    frames = ["epoch-0000.npz", "epoch-0002.npz", "epoch-0003.npz"]
    assert names == [*frames, "rows.npz"]


def test_rows_are_the_same_and_known_once(run):
    rows = Embeddings.load(run.embeddings("rows"))
    assert rows.h is None
    assert rows.thumbnails.shape == (50, 32, 32, 3)
    assert set(rows.split.tolist()) == {0, 1}
    for epoch in (0, 2, 3):
        np.testing.assert_array_equal(frame(run, epoch).ids, rows.ids)
        assert set(frame(run, epoch).arrays()) == {"ids", "h", "z", "h1", "h2", "z1", "z2"}


def test_the_last_one_is_what_embed_gives(run):
    whole = embed(run)
    where = {one: at for at, one in enumerate(whole.ids.tolist())}
    taken = whole.take(np.array([where[one] for one in frame(run, 3).ids.tolist()]))
    np.testing.assert_allclose(frame(run, 3).h, taken.h, atol=1e-5)
    np.testing.assert_allclose(frame(run, 3).z, taken.z, atol=1e-4)
    np.testing.assert_allclose(frame(run, 0).h, taken.layers["untrained"], atol=1e-5)


def test_two_views_are_of_the_same_sample_and_differ(run):
    last = frame(run, 3)
    assert not np.allclose(last.h1, last.h2)
    networks = load_networks(run)
    assert last.h1.shape == last.h2.shape == (50, networks.encoders[0].d)


def test_training_is_not_touched(run, tmp_path):
    plain = train(read_settings("digits", SMALL), tmp_path / "plain")
    losses = lambda one: [r["mean_loss"] for r in one.history().records if "epoch" in r]
    assert losses(plain) == losses(run)


def test_about_twenty_unless_told(tmp_path):
    assert FRAMES == 20
    with pytest.raises(InputError, match="at least 1; received 0"):
        snapshots(rows=0)
    with pytest.raises(InputError, match="at least 1 epoch; received 0"):
        snapshots(every=0)
