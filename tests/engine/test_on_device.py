"""Views made on the device of training: uint8 on the way, and the pictures of the C path."""

import dataclasses

import numpy as np
import pytest
import torch

from chiaroscuro.data import Dataset
from chiaroscuro.engine import fitting, read_settings, stream, train, view_batches
from chiaroscuro.engine.crops import Crops, views_of
from chiaroscuro.engine.stream import _Parcel
from chiaroscuro.views import Jitter, MultiCrop, SimCLR, Unfinished

CPU = torch.device("cpu")
VIEWS = {
    "cifar": SimCLR.large(32),
    "larger": SimCLR(size=40, strength=1.0, blur=0.5, solarise=0.4),
    "smaller": SimCLR(size=12, strength=1.0, blur=0.5, mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.3)),
    "rough": SimCLR(size=12, strength=1.0, antialias=False),
    "crops": MultiCrop((2, SimCLR(size=24)), (3, SimCLR(size=10, scale=(0.05, 0.4)))),
}


def images(n=48, shape=(31, 47)):
    return np.random.default_rng(0).integers(0, 256, (n, *shape, 3), np.uint8)


@pytest.mark.parametrize("name", VIEWS)
def test_views_on_the_device_are_those_of_the_compiled_path(name):
    here = view_batches(Dataset({"images": images()}), VIEWS[name], batch=16, seed=3)
    there = dataclasses.replace(here, unfinished=True)
    for step in (0, 4):
        right, (sent, _, _) = here[step], there[step]
        found = fitting._on_device((sent, None, None), CPU)
        pairs = list(zip(views_of(*found[:2]), views_of(*right[:2]), strict=True))
        assert len(pairs) == (5 if name == "crops" else 2)
        for ours, theirs in pairs:
            assert ours.shape == theirs.shape
            torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-5)


def test_a_picture_crosses_once_and_in_bytes():
    steps = view_batches(Dataset({"images": images()}), VIEWS["larger"], batch=16)
    sent, second, _ = dataclasses.replace(steps, unfinished=True)[0]
    assert isinstance(sent, Unfinished)
    assert second is None
    assert sent.images.dtype == torch.uint8
    own = sent.images.numel() + sum(parameters.nbytes for _, parameters in sent.recipes)
    made = sum(x.numel() * x.element_size() for x in steps[0][:2])
    assert own / 16 < 31 * 47 * 3 + 2 * 64
    assert made > 8 * own


def test_only_an_accelerator_and_simclr_wait():
    cuda, floats = torch.device("cuda"), images().astype(np.float32) / 255
    bytes_ = view_batches(Dataset({"images": images()}), VIEWS["cifar"], batch=16)
    assert bytes_.for_device(cuda).unfinished
    assert not bytes_.for_device(CPU).unfinished
    others = [
        view_batches({"images": floats}, VIEWS["cifar"], batch=16),
        view_batches(Dataset({"images": images()}), None, batch=16),
        view_batches(Dataset({"images": images()}), VIEWS["cifar"], 16, second_view=lambda x: x),
        view_batches(np.eye(48, dtype=np.float32), Jitter(noise=0.1), batch=16),
    ]
    assert not any(other.for_device(cuda).unfinished for other in others)


def test_training_on_unfinished_batches_is_training(monkeypatch):
    """As an accelerator would, with workers: the losses of the compiled path."""
    settings = read_settings(
        "simclr",
        [
            *("epochs=1", "batch=16", "views.first=SimCLR(size=12, strength=0.5)", "seed=1"),
            *("network.encoder=MLP(d_in=432, d=8)", "network.projector=Projector(d=4)"),
            *("optimiser.name=adamw", "optimiser.lr=1e-3", "schedule.warmup=0", "saving.record=1"),
        ],
    )
    run = {}
    for waits in (False, True):
        monkeypatch.setattr(
            fitting.Steps,
            "for_device",
            lambda self, device, waits=waits: dataclasses.replace(self, unfinished=waits),
        )
        workers = {"data": {"workers": 1}} if waits else {}
        table = settings.table() | {"data": settings.table()["data"] | workers.get("data", {})}
        records = train(table, data=Dataset({"images": images()})).history().records
        run[waits] = [record["loss"] for record in records if "loss" in record]
    assert len(run[True]) == 3
    np.testing.assert_allclose(run[True], run[False], rtol=2e-3)  # AdamW divides by the rounding


class Pinned:
    """In the place of a tensor: says whether it was pinned."""

    def __init__(self, pinned=False):
        self.pinned = pinned

    def pin_memory(self, *device):
        return Pinned(True)


def test_everything_in_a_batch_is_pinned_and_crops_stay_crops():
    x1, x2, y = _Parcel((Pinned(), Crops([Pinned(), {"a": Pinned()}]), None)).pin_memory().batch
    assert isinstance(x2, Crops)
    assert x1.pinned
    assert x2[0].pinned
    assert x2[1]["a"].pinned
    assert y is None


def test_memory_is_pinned_for_the_device_that_is_trained_on(monkeypatch):
    """Not for one that is merely there, and not for MPS, which has no such memory."""
    seen = []

    def loader(*arguments, pin_memory, **more):
        seen.append(pin_memory)
        return []

    monkeypatch.setattr(stream, "DataLoader", loader)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    steps = view_batches(np.eye(48, dtype=np.float32), Jitter(noise=0.1), batch=16)
    for kind in ("cuda", "cpu", "mps"):
        list(steps.for_device(torch.device(kind)).stream(0, 1, workers=1))
    assert seen == [True, False, False]
