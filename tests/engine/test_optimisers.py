"""Optimisers against loops written out, schedules at their ends."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from chiaroscuro.engine import (
    LARS,
    Formula,
    OptimiserSettings,
    ScheduleSettings,
    constant,
    cosine,
    linear,
    optimiser,
    towards_one,
)
from chiaroscuro.errors import InputError


def naive_lars(w, gradients, lrs, momentum, decay, eta, exclude):
    """Algorithm 1 of the paper, number by number."""
    w, v = [float(x) for x in w], [0.0] * len(w)
    for g, lr in zip(gradients, lrs, strict=True):
        size = math.sqrt(sum(x * x for x in w))
        slope = math.sqrt(sum(x * x for x in g))
        trust = 1.0
        if not exclude and size > 0 and slope > 0:
            trust = eta * size / (slope + decay * size)
        for i in range(len(w)):
            pull = g[i] if exclude else g[i] + decay * w[i]
            v[i] = momentum * v[i] + lr * trust * pull
            w[i] = w[i] - v[i]
    return w


@pytest.mark.parametrize("shape", [(3, 2), (6,)], ids=["weights", "bias"])
def test_lars_is_its_algorithm(shape):
    torch.manual_seed(0)
    w = nn.Parameter(torch.randn(shape, dtype=torch.float64))
    start = w.detach().flatten().tolist()
    gradients = torch.randn(5, *shape, dtype=torch.float64) * 10
    lrs = [0.1, 0.5, 0.3, 0.2, 0.05]
    settings = OptimiserSettings(name="lars", lr=1.0, weight_decay=0.1, trust=0.02)
    module = nn.Module()
    module.w = w
    lars = optimiser(settings, module)
    for g, lr in zip(gradients, lrs, strict=True):
        for group in lars.param_groups:
            group["lr"] = lr
        w.grad = g.clone()
        lars.step()
    flat = gradients.flatten(1).tolist()
    expected = naive_lars(start, flat, lrs, 0.9, 0.1, 0.02, exclude=len(shape) == 1)
    np.testing.assert_allclose(w.detach().flatten().tolist(), expected, rtol=1e-12)


def test_lars_at_zero():
    w = nn.Parameter(torch.zeros(2, 2))
    w.grad = torch.ones(2, 2)
    LARS([w], lr=0.5, weight_decay=0.1).step()  # trust 1: it must be able to leave zero
    torch.testing.assert_close(w.detach(), torch.full((2, 2), -0.5))
    w.grad = torch.zeros(2, 2)
    LARS([w], lr=0.5, weight_decay=0.0).step()
    torch.testing.assert_close(w.detach(), torch.full((2, 2), -0.5))
    with pytest.raises(InputError, match="received -1"):
        LARS([w], lr=-1)


def test_excluded_lars_without_decay_is_sgd():
    torch.manual_seed(0)
    a = nn.Parameter(torch.randn(5))
    b = nn.Parameter(a.detach().clone())
    one = LARS([{"params": [a], "exclude": True}], lr=0.1)
    two = torch.optim.SGD([b], lr=0.1, momentum=0.9)
    for _ in range(4):
        a.grad = b.grad = torch.randn(5)
        one.step()
        two.step()
    torch.testing.assert_close(a.detach(), b.detach())


@pytest.mark.parametrize("name", ["lars", "sgd", "adamw"])
def test_biases_norms_and_temperatures_do_not_decay(name):
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2))
    groups = optimiser(OptimiserSettings(name=name, weight_decay=0.3), net).param_groups
    assert [g["weight_decay"] for g in groups] == [0.3, 0.0]
    assert [{p.ndim for p in g["params"]} for g in groups] == [{4, 2}, {1}]
    assert sum(len(g["params"]) for g in groups) == len(list(net.parameters()))


@pytest.mark.parametrize("schedule", [cosine, linear, constant])
def test_schedules_at_their_ends(schedule):
    assert schedule(0, 100, 10) == pytest.approx(0.1)
    assert schedule(9, 100, 10) == schedule(10, 100, 10) == 1.0
    assert schedule(0, 100) == 1.0
    assert schedule(100, 100, 10) == (1.0 if schedule is constant else pytest.approx(0.0))
    assert schedule(55, 100, 10) == (1.0 if schedule is constant else pytest.approx(0.5))
    factors = [schedule(step, 100, 10) for step in range(10, 100)]
    assert factors == sorted(factors, reverse=True)
    with pytest.raises(InputError, match="warmup 11, steps 10"):
        schedule(0, 10, 11)


# ---- formulas ----

BOLTS = "step / warmup if step < warmup else (1 + cos(pi * (step - warmup) / (steps - warmup))) / 2"


def test_a_formula_is_what_lambda_lr_does():
    """torch's LambdaLR with the function that the paper's library hands it, step by step."""

    def function(step):
        if step < 5:
            return step / 5
        return 0.5 * (1 + math.cos(math.pi * (step - 5) / 15))

    w = nn.Parameter(torch.zeros(1))
    sgd = torch.optim.SGD([w], lr=0.3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(sgd, function)
    settings = ScheduleSettings(name="lambda", formula=BOLTS, warmup=1)
    for step in range(20):
        factor = settings.factor(step, steps=20, per_epoch=5)
        assert 0.3 * factor == pytest.approx(scheduler.get_last_lr()[0], abs=1e-12)
        if 0 < step < 5:
            assert factor == pytest.approx(cosine(step - 1, 20, 5))
        elif step:
            assert factor == pytest.approx(cosine(step, 20, 5))
        sgd.step()
        scheduler.step()


FORMULAS = {
    "0.1 ** floor(epoch / 2)": [1, 1, 1, 1, 0.1, 0.1],
    "max(0.2, 1 - step / steps)": [1, 5 / 6, 4 / 6, 0.5, 2 / 6, 0.2],
    "1 if epoch < 1 or not step != 4 and epochs == 3 else 0.5": [1, 1, 0.5, 0.5, 1, 0.5],
    "-(-2) + 3 * 4 % 5 // 2 - abs(-3)": [0.0] * 6,
}


@pytest.mark.parametrize("text", FORMULAS)
def test_formulas(text):
    found = [Formula(text)(step, 6, 0, 2) for step in range(6)]
    assert found == pytest.approx(FORMULAS[text])


WRONG = {
    "": "cannot be read",
    "1 +": "cannot be read",
    "lr": "knows no `lr`",
    "step if step < 9 else size": "knows no `size`",
    "__import__('os')": "knows no `__import__`",
    "step.real": "`step.real` is not",
    "cos(x=1)": "knows no|is not",
    "[1][0]": "is not",
    "'a'": "is not",
    "lambda: 1": "is not",
    "1 / step": "has no value at step 0 of 2: float division by zero",
    "9 ** 9 ** 9": "has no value",
    "-1": "needs a factor from 0; at step 0 of 2 `-1` is -1.0",
    "cos()": "has no value",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_formula_is_arithmetic_and_nothing_else(text):
    with pytest.raises(InputError, match=WRONG[text]):
        Formula(text)


def test_the_momentum_rises_to_one():
    m = [towards_one(0.996, step, 100) for step in range(101)]
    assert m[0] == pytest.approx(0.996)
    assert m[50] == pytest.approx(0.998)
    assert m[100] == 1.0
    assert m == sorted(m)


@pytest.mark.parametrize(("name", "momentum"), [("adamw", 0.9), ("sgd", 0.9), ("sgd", 0.0)])
def test_decay_alone_takes_a_weight_as_far_as_the_settings_say(name, momentum):
    """What momentum adds is 1 / (1 - momentum), but for the 1 / (1 - momentum) steps at the end."""
    settings = OptimiserSettings(name, lr=0.01, momentum=momentum, weight_decay=0.02)
    layer, steps = nn.Linear(3, 2, bias=False), 1000
    first = layer.weight.detach().clone()
    made = optimiser(settings, layer)
    for _ in range(steps):
        layer.weight.grad = torch.zeros_like(layer.weight)
        made.step()
    gone = -torch.log(layer.weight.detach() / first).mean().item()
    assert gone == pytest.approx(settings.decayed(0.01 * steps), rel=0.02)
