"""The loop as a function of objects: any module, loss, batches and optimiser."""

import shutil

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from chiaroscuro.artifacts import Run, checkpoints
from chiaroscuro.engine import (
    FitOptions,
    Networks,
    OptimiserSettings,
    SavingSettings,
    ScheduleSettings,
    StopTraining,
    fit,
    open_run,
    view_batches,
)
from chiaroscuro.errors import ChiaroError, InputError
from chiaroscuro.kernels import Gaussian
from chiaroscuro.objectives import InfoNCE, SupCon
from chiaroscuro.views import Jitter

SAVED = FitOptions(saving=SavingSettings(every=1, record=1))


def module(seed=0, dropout=0.0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 4))


def batches(n=6):
    draw = torch.Generator().manual_seed(1)
    return [tuple(torch.randn(2, 16, 6, generator=draw)) for _ in range(n)]


def weights(networks):
    return [p.detach().clone() for p in networks.parameters()]


def same(one, two):
    assert len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        assert torch.equal(a, b)


def test_it_is_the_loop_that_one_would_write():
    net, by_hand = module(), module()
    fitted = fit(net, InfoNCE(), batches(), torch.optim.Adam(net.parameters(), 0.01), epochs=2)
    adam, losses = torch.optim.Adam(by_hand.parameters(), 0.01), []
    for _ in range(2):
        for x1, x2 in batches():
            adam.zero_grad()
            z1, z2 = by_hand(torch.cat([x1, x2])).chunk(2)
            loss = InfoNCE()(z1, z2)
            loss.backward()
            adam.step()
            losses.append(float(loss.detach()))
    same(weights(net), weights(by_hand))
    assert fitted.networks.encoders[0] is net
    assert [r["mean_loss"] for r in fitted.history if "epoch" in r] == pytest.approx(
        [np.mean(losses[:6]), np.mean(losses[6:])]
    )
    assert fitted.run is None
    assert not net.training


def test_any_function_is_a_loss_and_labels_reach_it():
    seen = []

    def loss(z1, z2, labels):
        seen.append(labels.tolist())
        return (z1 - z2).square().mean()

    three = [(*pair, torch.arange(16)) for pair in batches(2)]
    nested = [((x1, x2), y) for x1, x2, y in three]
    one = fit(module(), loss, three)
    two = fit(module(), loss, nested)
    same(weights(one.networks), weights(two.networks))
    assert seen == [list(range(16))] * 4
    supervised = fit(module(), SupCon(), [(*pair, torch.arange(16) % 2) for pair in batches(2)])
    assert supervised.history[-1]["step"] == 2


def test_a_loss_that_learns_is_trained():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, z1, z2):
            return self.scale * (z1 - z2).square().mean()

    loss = Scaled()
    fit(module(), loss, batches(2), OptimiserSettings(name="sgd", lr=0.1))
    assert float(loss.scale.detach()) != 1.0


def test_rates_follow_a_function_settings_or_a_scheduler_of_torch():
    def rates(schedule, optimiser=None, net=None):
        net = net or module()
        optimiser = optimiser or torch.optim.SGD(net.parameters(), 0.1)
        options = FitOptions(saving=SavingSettings(record=1))
        fitted = fit(net, InfoNCE(), batches(4), optimiser, schedule, options=options)
        return [r["lr"] for r in fitted.history if "lr" in r]

    halves = [0.1 * 0.5**step for step in range(4)]
    assert rates(lambda step: 0.5**step) == pytest.approx(halves)
    net = module()
    sgd = torch.optim.SGD(net.parameters(), 0.1)
    assert rates(torch.optim.lr_scheduler.ExponentialLR(sgd, 0.5), sgd, net) == pytest.approx(
        halves
    )
    settings = ScheduleSettings(name="linear", warmup=0.0)
    assert rates(settings) == pytest.approx([0.1, 0.075, 0.05, 0.025])
    net = module()
    groups = [{"params": net[0].parameters(), "lr": 0.1}, {"params": net[3].parameters()}]
    two = torch.optim.SGD(groups, 0.01)
    fit(net, InfoNCE(), batches(1), two, lambda step: 0.5)
    assert [g["lr"] for g in two.param_groups] == pytest.approx([0.05, 0.005])


def test_micro_batches_and_precision_and_slow_copies():
    exact = fit(module(), InfoNCE(), batches(3))
    cached = fit(module(), InfoNCE(), batches(3), options=FitOptions(micro_batch=5))
    for a, b in zip(weights(exact.networks), weights(cached.networks), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    fit(module(), InfoNCE(), batches(2), options=FitOptions(precision="bfloat16", average=0.9))
    with pytest.raises(InputError, match="`queue=8` needs to know the dimension"):
        fit(module(), InfoNCE(), batches(2), options=FitOptions(momentum=0.9, queue=8))
    net = module()
    net.d = 4
    fit(net, InfoNCE(), batches(2), options=FitOptions(momentum=0.9, queue=8))
    with pytest.raises(InputError, match=r"with 2 encoders needs `symmetric=True`"):
        fit(
            Networks([module(), module(1)]), InfoNCE(), batches(2), options=FitOptions(momentum=0.9)
        )


def test_two_encoders_with_slow_copies_both_learn():
    pair = Networks([module(0), module(1)])
    before = [weights(encoder) for encoder in pair.encoders]
    options = FitOptions(momentum=0.9, symmetric=True)
    fit(pair, InfoNCE(), batches(2), options=options)
    for encoder, start in zip(pair.encoders, before, strict=True):
        assert not torch.equal(weights(encoder)[0], start[0])


# ---- batches ----


class Endless(IterableDataset):
    def __iter__(self):
        while True:
            x = torch.randn(6)
            yield x, x + 0.1


def test_loaders_and_generators():
    x = torch.randn(40, 6)
    loader = DataLoader(TensorDataset(x, x + 0.1), batch_size=8, shuffle=True)
    assert fit(module(), InfoNCE(), loader, epochs=2).history[-1]["step"] == 10
    endless = DataLoader(Endless(), batch_size=8)
    with pytest.raises(InputError, match="`steps_per_epoch=100`"):
        fit(module(), InfoNCE(), endless)
    fitted = fit(module(), InfoNCE(), endless, epochs=2, steps_per_epoch=3)
    assert [r["step"] for r in fitted.history if "epoch" in r] == [3, 6]
    one = fit(module(), InfoNCE(), (pair for pair in batches(6)), epochs=2, steps_per_epoch=3)
    two = fit(module(), InfoNCE(), batches(6))
    same(weights(one.networks), weights(two.networks))
    with pytest.raises(ChiaroError, match="ended after 2 of 3 steps"):
        fit(module(), InfoNCE(), iter(batches(2)), steps_per_epoch=3)


WRONG = {
    "four": ([(1, 2, 3, 4)], r"\(x1, x2\).*that of step 0 is a `tuple` of 4"),
    "one view": ([(torch.zeros(4, 6), torch.zeros(4))], r"\(4, 6\) and \(4,\).*has one view"),
    "lengths": ([(torch.zeros(4, 6), torch.zeros(5, 6))], r"\(4, 6\) and \(5, 6\)"),
    "nan": ([(torch.full((4, 6), torch.nan), torch.zeros(4, 6))], "24 numbers of step 0 are NaN"),
}


@pytest.mark.parametrize(("wrong", "words"), WRONG.values(), ids=WRONG)
def test_batches_that_are_none(wrong, words):
    with pytest.raises(InputError, match=words):
        fit(module(), InfoNCE(), wrong)


def calls(**changes):
    """`fit` with one thing changed."""
    parts = {"networks": module(), "objective": InfoNCE(), "batches": batches(1), **changes}
    return fit(**parts)


class Tuple(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x):
        return self.layer(x), x


def short_cycle():
    net = module()
    sgd = torch.optim.SGD(net.parameters(), 0.1)
    cycle = torch.optim.lr_scheduler.OneCycleLR(sgd, 0.1, total_steps=2)
    return {"networks": net, "optimiser": sgd, "schedule": cycle, "batches": batches(3)}


DOUBLE = [tuple(torch.zeros(2, 4, 6, dtype=torch.float64))]
REFUSED = {
    "other parameters": (
        {"optimiser": torch.optim.SGD(module().parameters(), 0.1)},
        "of its 4 tensors none is one of theirs",
    ),
    "a loss of many numbers": (
        {"objective": lambda z1, z2: z1},
        r"one number; .* returned shape \(16, 4\)",
    ),
    "a loss without a gradient": (
        {"objective": lambda z1, z2: z1.detach().sum()},
        r"gradient with respect to z; .* cuts it off",
    ),
    "a loss that is a float": ({"objective": lambda z1, z2: 1.5}, "returned 1.5, which is no tens"),
    "a loss of one side": ({"objective": lambda z: z.sum()}, r"`\(z1, z2\)`.* takes `\(z\)`"),
    "a loss that is a class": ({"objective": InfoNCE}, r"the class `.*InfoNCE`: call it"),
    "a kernel": ({"objective": Gaussian(tau=0.5)}, r"give `InfoNCE\(Gaussian\(tau=0.5\)\)`"),
    "an optimiser by name": ({"optimiser": "sgd"}, "OptimiserSettings.* received 'sgd'"),
    "an optimiser with a closure": ({"optimiser": torch.optim.LBFGS}, "`LBFGS` takes `closure`"),
    "a schedule by name": ({"schedule": "cosine"}, "ScheduleSettings.* received 'cosine'"),
    "a schedule of NaN": ({"schedule": lambda step: float("nan")}, "that of step 0 is nan"),
    "a scheduler that ends": (short_cycle(), "as many steps as are trained, 3; it was made for 2"),
    "half an epoch": ({"epochs": 1.5}, "`epochs` needs a whole number of at least 1; received 1.5"),
    "no module": ({"networks": len}, "`encoder` needs a module of torch; received a `builtin"),
    "a class of modules": ({"networks": Tuple}, "received the class `Tuple`: call it"),
    "open shapes": ({"networks": nn.LazyLinear(4)}, "2 parameters of `LazyLinear` have none"),
    "a network of tuples": ({"networks": Tuple()}, "for 16 pairs; `Tuple` gives a `tuple`"),
    "other numbers": (
        {"batches": DOUBLE},
        r"`Sequential` needs to take .* \(4, 6\) in float64 and .* raised RuntimeError: mat1",
    ),
    "a dataset": (
        {"batches": TensorDataset(torch.zeros(4, 6), torch.zeros(4, 6))},
        r"a `TensorDataset` gives one at a time: `DataLoader",
    ),
    "a function": ({"batches": lambda: batches(1)}, "a `function`, which is called first"),
    "one callback": ({"callbacks": print}, "`callbacks` need a list of functions"),
    "a number as callback": ({"callbacks": [3]}, r"functions and loggers; received \[3\]"),
    "nothing to resume": ({"resume": True}, r"`fit\(resume=True\)` needs the run"),
}


@pytest.mark.parametrize(("wrong", "words"), REFUSED.values(), ids=REFUSED)
def test_wrong_calls(wrong, words):
    with pytest.raises(InputError, match=words):
        calls(**wrong)


def test_arrays_are_batches():
    one = fit(module(), InfoNCE(), [(a.numpy(), b.numpy()) for a, b in batches(2)])
    same(weights(one.networks), weights(fit(module(), InfoNCE(), batches(2)).networks))


def test_a_plateau_is_judged_by_epochs(tmp_path):
    """One that has not fallen by 90 % halves the rate; resumed, it remembers the last."""

    def trained(out, **more):
        net = module()
        sgd = torch.optim.SGD(net.parameters(), 0.1)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(sgd, factor=0.5, patience=0)
        schedule.threshold = 0.9
        return fit(
            net, InfoNCE(), batches(2), sgd, schedule, epochs=3, options=SAVED, out=out, **more
        )

    def stop(moment):
        raise StopTraining

    whole = trained(tmp_path / "whole")
    trained(tmp_path / "cut", callbacks=[stop])
    resumed = trained(tmp_path / "cut", resume=True)
    for fitted in (whole, resumed):
        rates = [r["lr"] for r in fitted.run.history().records if "lr" in r]
        assert rates == pytest.approx([0.1, 0.1, 0.1, 0.1, 0.05, 0.05])
    same(weights(whole.networks), weights(resumed.networks))


# ---- saved and resumed ----


def killed_and_resumed(tmp_path, make, dropout=0.3):
    """Weights of a training left alone, and of one stopped after step 4 and resumed elsewhere."""

    def trained(out, **more):
        net = module(dropout=dropout)
        return fit(net, InfoNCE(), make(), epochs=2, options=SAVED, out=out, **more)

    whole = trained(tmp_path / "whole")

    def stop(moment):
        raise StopTraining

    trained(tmp_path / "cut", callbacks=[stop])
    torch.manual_seed(99)
    resumed = trained(tmp_path / "cut", resume=True)
    return whole, resumed


def test_a_shuffling_loader_resumes_to_the_bit(tmp_path):
    x = torch.randn(32, 6, generator=torch.Generator().manual_seed(0))

    class Noisy(TensorDataset):
        def __getitem__(self, row):
            return x[row] + 0.1 * torch.randn(6), x[row] + 0.1 * torch.randn(6)

    def make():
        return DataLoader(Noisy(x), batch_size=8, shuffle=True)

    whole, resumed = killed_and_resumed(tmp_path, make)
    same(weights(whole.networks), weights(resumed.networks))
    saved = checkpoints.latest_good(tmp_path / "whole" / "checkpoints").checkpoint
    again = checkpoints.latest_good(tmp_path / "cut" / "checkpoints").checkpoint
    assert saved.step == again.step == 8
    for name, array in saved.arrays.items():
        assert array.tobytes() == again.arrays[name].tobytes(), name


def test_our_batches_resume_to_the_bit(tmp_path):
    x = np.random.default_rng(0).normal(size=(32, 6)).astype(np.float32)
    make = lambda: view_batches(x, Jitter(noise=0.1), batch=8, seed=4)
    whole, resumed = killed_and_resumed(tmp_path, make)
    same(weights(whole.networks), weights(resumed.networks))


def test_initial_weights_are_those_that_training_began_with(tmp_path):
    folder = tmp_path / "run"
    fit(module(), InfoNCE(), batches(), out=folder)
    first = checkpoints.latest_good(folder / "initial").checkpoint
    for kept in (folder / "initial", folder / "checkpoints"):
        for one in kept.iterdir():  # as a killed save leaves it
            one.rename(kept / f"{checkpoints._TEMPORARY}{one.name}")
    fit(module(), InfoNCE(), batches(), out=folder, resume=True, restart=True)
    again = checkpoints.latest_good(folder / "initial").checkpoint
    assert again.arrays.keys() == first.arrays.keys()
    assert all(np.array_equal(again.arrays[name], first.arrays[name]) for name in first.arrays)
    before = {path.name for path in (folder / "initial").iterdir()}
    fit(module(1), InfoNCE(), batches(), epochs=2, out=folder, resume=True)  # goes on
    assert {path.name for path in (folder / "initial").iterdir()} == before
    shutil.rmtree(folder / "checkpoints")
    fit(module(1), InfoNCE(), batches(), out=folder, resume=True, restart=True)  # begins anew
    other = checkpoints.latest_good(folder / "initial").checkpoint
    assert any(not np.array_equal(other.arrays[name], first.arrays[name]) for name in first.arrays)


def test_a_scheduler_of_torch_resumes(tmp_path):
    def trained(out, **more):
        net = module()
        sgd = torch.optim.SGD(net.parameters(), 0.1)
        schedule = torch.optim.lr_scheduler.StepLR(sgd, 3, 0.5)
        return fit(
            net, InfoNCE(), batches(4), sgd, schedule, epochs=2, options=SAVED, out=out, **more
        )

    def stop(moment):
        raise StopTraining

    whole = trained(tmp_path / "whole")
    trained(tmp_path / "cut", callbacks=[stop])
    resumed = trained(tmp_path / "cut", resume=True)
    same(weights(whole.networks), weights(resumed.networks))
    rates = [[r["lr"] for r in f.run.history().records if "lr" in r] for f in (whole, resumed)]
    assert rates[0] == rates[1]


def test_a_folder_asks_for_its_objects(tmp_path):
    net = module()
    fit(net, InfoNCE(), batches(2), out=tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert run.settings()["network"]["encoder"] == "<torch.nn.modules.container.Sequential>"
    with pytest.raises(InputError, match=r"its encoder given as an object.*`encoder=...`"):
        _ = open_run(run).networks
    fresh = module(seed=5)
    before = weights(fresh)
    opened = open_run(run, encoder=fresh)
    same(weights(opened.networks), weights(net))
    same(weights(fresh), before)
    assert opened.untrained.encoders[0] is not fresh
    same(weights(opened.untrained), weights(module()))
    with pytest.raises(InputError, match=r"92 numbers in 4 tensors; received .* with 35 in 2"):
        _ = open_run(run, encoder=nn.Linear(6, 5)).networks
