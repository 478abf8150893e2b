"""Resuming with other objects than a run began with is refused, as far as can be known."""

import functools

import numpy as np
import pytest
import torch
from torch import nn

import chiaroscuro as cs
from chiaroscuro.engine import FitOptions, SavingSettings, StopTraining, fit
from chiaroscuro.engine.descriptions import describe, require_same
from chiaroscuro.errors import InputError

SETTINGS = {
    "epochs": 2,
    "batch": 8,
    "optimiser": {"name": "adamw", "lr": 0.01},
    "schedule": {"warmup": 0.0},
    "network": {"projector": ""},
}
X = np.random.default_rng(0).normal(size=(16, 5)).astype(np.float32)
SCALE = 0.1


class Bent(cs.Kernel):
    """A kernel of one's own."""

    def __init__(self, tau):
        super().__init__()
        self.tau = tau

    def log(self, z, w):
        return -torch.cdist(z, w).div(self.tau)


class Other(cs.Kernel):
    def log(self, z, w):
        return -torch.cdist(z, w)


class Noise(cs.views.View):
    def __init__(self, scale=0.1):
        self.scale = scale

    def __call__(self, x, samples, *args, **kwargs):
        return x + self.scale * torch.randn(x.shape)


class Shift:
    def __init__(self, by):
        self.by = by

    def __call__(self, x):
        return x + self.by * torch.randn(x.shape)


def noisy(x, scale=0.1):
    return x + scale * torch.randn(x.shape)


def scaled(x):
    return x + SCALE * torch.randn(x.shape)


def closed(scale):
    return lambda x: x + scale * torch.randn(x.shape)


def loss(z1, z2):
    return (z1 - z2).square().mean() - z1.std()


def changed(source, name, **around):
    """A function of the same name as one here, of another text."""
    space = {"torch": torch, "__name__": __name__, **around}
    exec(compile(source, "changed", "exec"), space)  # noqa: S102 - text of this file
    return space[name]


def stop(moment):
    raise StopTraining("enough")


def trained(out, resume=False, **objects):
    given = {"encoder": nn.Linear(5, 3), "view": noisy, "objective": loss, **objects}
    return cs.train(SETTINGS, out, [] if resume else [stop], resume, data=X, **given)


ANOTHER = {
    "a kernel of another tau": (
        {"objective": lambda: cs.InfoNCE(Bent(0.2))},
        {"objective": lambda: cs.InfoNCE(Bent(0.5))},
        r"the objective it began with, `.*Bent\(tau=0.2\).*`; received `.*Bent\(tau=0.5\).*`"
        r".*`kernel.tau` 0.2 then and 0.5 now",
    ),
    "another kernel": (
        {"objective": lambda: cs.InfoNCE(Bent(0.2))},
        {"objective": lambda: cs.InfoNCE(Other())},
        r"`kernel` \S*\.Bent then and \S*\.Other now",
    ),
    "other negatives": (
        {"objective": lambda: cs.InfoNCE(Other(), cs.AllButSelf())},
        {"objective": lambda: cs.InfoNCE(Other(), cs.AllButPair())},
        r"`negatives` .*AllButSelf then and .*AllButPair now",
    ),
    "another function": (
        {"objective": lambda: loss},
        {"objective": lambda: lambda z1, z2: (z1 - z2).square().mean()},
        r"objective it began with, .*loss.* then and .*lambda` now",
    ),
    "another number in the code": (
        {"objective": lambda: loss},
        {
            "objective": lambda: changed(
                "def loss(z1, z2):\n    return (z1 - z2).square().mean() - 2 * z1.std()", "loss"
            )
        },
        r"the code of `loss` \w{16} then and \w{16} now",
    ),
    "another lambda": (
        {"view": lambda: lambda x: x + 0.1 * torch.randn(x.shape)},
        {"view": lambda: lambda x: x + 0.2 * torch.randn(x.shape)},
        "the code of `.*lambda`",
    ),
    "another number in a closure": (
        {"view": lambda: closed(0.1)},
        {"view": lambda: closed(0.3)},
        r"`scale` 0.1 then and 0.3 now",
    ),
    "another argument of a partial": (
        {"view": lambda: functools.partial(noisy, scale=0.1)},
        {"view": lambda: functools.partial(noisy, scale=0.3)},
        r"`keywords\['scale'\]` 0.1 then and 0.3 now",
    ),
    "another attribute": (
        {"view": lambda: Shift(0.1)},
        {"view": lambda: Shift(0.3)},
        r"view it began with, .*`by` 0.1 then and 0.3 now",
    ),
    "another default": (
        {"view": lambda: noisy},
        {
            "view": lambda: changed(
                "def noisy(x, scale=0.2):\n    return x + scale * torch.randn(x.shape)", "noisy"
            )
        },
        r"`noisy default 0` 0.1 then and 0.2 now",
    ),
    "another dropout": (
        {"encoder": lambda: nn.Sequential(nn.Linear(5, 3), nn.Dropout(0.1))},
        {"encoder": lambda: nn.Sequential(nn.Linear(5, 3), nn.Dropout(0.5))},
        r"encoder it began with, .*`1.p` 0.1 then and 0.5 now",
    ),
    "another optimiser": (
        {"optimiser": lambda: lambda p: torch.optim.SGD(p, lr=0.1)},
        {"optimiser": lambda: lambda p: torch.optim.SGD(p, lr=0.2)},
        "optimiser it began with.*the code of",
    ),
}


@pytest.mark.parametrize(("first", "second", "words"), ANOTHER.values(), ids=ANOTHER)
def test_another_object_is_refused(tmp_path, first, second, words):
    made = lambda parts: {name: make() for name, make in parts.items()}
    trained(tmp_path / "run", **made(first))
    before = (tmp_path / "run" / "history.jsonl").read_bytes()
    with pytest.raises(InputError, match=words):
        trained(tmp_path / "run", resume=True, **made(second))
    assert (tmp_path / "run" / "history.jsonl").read_bytes() == before
    run = trained(tmp_path / "run", resume=True, **made(first))
    assert run.history().records[-1]["step"] == 4


def test_a_constant_that_a_function_names_counts(tmp_path, monkeypatch):
    trained(tmp_path / "run", view=scaled)
    monkeypatch.setitem(globals(), "SCALE", 0.2)
    with pytest.raises(InputError, match=r"`SCALE` 0.1 then and 0.2 now"):
        trained(tmp_path / "run", resume=True, view=scaled)


def test_comments_docstrings_and_places_do_not_count(tmp_path):
    source = "def loss(z1, z2):\n    return (z1 - z2).square().mean() - z1.std()"
    other = "\n\n" + source.replace(
        "    return", '    """What it is."""\n    # and why\n    return'
    )
    trained(tmp_path / "run", objective=changed(source, "loss"))
    run = trained(tmp_path / "run", resume=True, objective=changed(other, "loss"))
    assert run.history().records[-1]["step"] == 4


def test_the_objects_that_were_trained_go_on(tmp_path):
    """Weights, and what a training has changed in place, do not count."""
    own = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3))
    objective = cs.InfoNCE(cs.Sum(Bent(0.2), cs.Gaussian(tau=cs.Learnable(0.5))))
    trained(tmp_path / "run", encoder=own, objective=objective)
    run = trained(tmp_path / "run", resume=True, encoder=own, objective=objective)
    assert run.history().records[-1]["step"] == 4


def test_the_code_of_another_python_is_not_compared():
    then = describe(noisy)
    now = {**then, "python": "3.99", "code": {"noisy": "another"}}
    (note,) = require_same("run", {"view": then}, {"view": now})
    assert "3.99 now" in note
    assert require_same("run", {"view": {"path": then["path"]}}, {"view": then}) == []  # older


def test_fit_refuses_them_too(tmp_path):
    batches = [(torch.from_numpy(X), torch.from_numpy(X + 0.1))] * 2
    options = FitOptions(saving=SavingSettings(every=1))

    def fitted(objective, **more):
        net = nn.Linear(5, 3)
        return fit(net, objective, batches, epochs=2, options=options, out=tmp_path, **more)

    fitted(cs.InfoNCE(cs.Cosine(tau=0.5)), callbacks=[stop])
    with pytest.raises(InputError, match=r"objective it began with, `.*Cosine\(tau=0.5\).*Gauss"):
        fitted(cs.InfoNCE(cs.Gaussian(tau=0.5)), resume=True)
    assert fitted(cs.InfoNCE(cs.Cosine(tau=0.5)), resume=True).history[-1]["step"] == 4


def test_fit_refuses_another_function(tmp_path):
    batches = [(torch.from_numpy(X), torch.from_numpy(X + 0.1))] * 2
    fit(nn.Linear(5, 3), loss, batches, out=tmp_path)
    with pytest.raises(
        InputError, match=r"objective it began with, .*loss.* then and .*lambda` now"
    ):
        fit(nn.Linear(5, 3), lambda a, b: (a - b).mean(), batches, out=tmp_path, resume=True)


def test_a_view_of_other_values_does_not_embed(tmp_path):
    trained(tmp_path / "run", view=Shift(0.1))
    given = {"encoder": nn.Linear(5, 3), "objective": loss}
    assert len(cs.embed(tmp_path / "run", X, view=Shift(0.1), **given).h) == 16
    with pytest.raises(InputError, match=r"view=.*Shift.*`by` 0.1 then and 0.3 now"):
        cs.embed(tmp_path / "run", X, view=Shift(0.3), **given)


def test_a_description_is_json_of_a_bounded_size():
    import json

    deep = nn.Sequential(*(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1)) for _ in range(400)))
    assert len(json.dumps(describe(deep))) < 60_000
    ring = Shift(0.1)
    ring.self = ring
    assert describe(ring)["values"]["by"] == "0.1"


def test_what_differs_from_process_to_process_does_not_count():
    """Addresses, the order of sets, and tensors that learn."""

    def made():
        own = Shift(0.1)
        own.some = {"a", "b", noisy, loss}
        own.learnt = torch.randn(3, requires_grad=True)
        own.generator, own.array = np.random.default_rng(), np.arange(3)
        return describe(own)

    one, two = made(), made()
    assert one == two
    assert "0x" not in str(one)
