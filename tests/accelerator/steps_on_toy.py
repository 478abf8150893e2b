"""Take training steps on the toy device and on the CPU; print the waits of a step, as JSON.

python steps_on_toy.py toy.so
"""

import copy
import itertools
import json
import os
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

import chiaroscuro as cs
from accelerator.on_toy import register
from chiaroscuro.engine import FitOptions, Networks, OptimiserSettings
from chiaroscuro.engine.state import begin
from chiaroscuro.engine.step import read_losses, take_step

STEPS = 4
counted = itertools.count()


def networks(predictor=False):
    torch.manual_seed(0)
    encoder = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 8))
    projector = cs.models.Projector(d_in=8, d=4, depth=1, last="none")
    own = torch.nn.Linear(4, 4) if predictor else None
    return Networks([encoder], [projector], own)


def named(name, **more):
    return OptimiserSettings(name=name, lr=0.05, **more)


CASES = {
    "lars": (cs.InfoNCE(), named("lars"), {}),
    "sgd, clipped": (cs.InfoNCE(), named("sgd"), {"clip": 0.1}),
    "adamw": (cs.InfoNCE(), named("adamw", second_momentum=0.99), {}),
    "a learnt temperature, clipped": (
        cs.InfoNCE(cs.Cosine(cs.Learnable([0.5] * 4, least=0.01))),
        named("adamw", second_momentum=0.99),
        {"clip": 1.0},
    ),
    "a measured temperature": (
        cs.InfoNCE(cs.Gaussian(tau=cs.Adaptive(0.5, 4))),
        named("sgd"),
        {"average": 0.9},
    ),
    "a slow copy and a queue": (
        cs.InfoNCE(cs.Cosine(tau=0.2), cs.OnlyPositive(), "first"),
        named("sgd"),
        {"momentum": 0.9, "queue": 32, "symmetric": True},
    ),
    "dino": (cs.DINO(), named("sgd"), {"momentum": 0.9, "symmetric": True}),
    "micro-batches": (cs.InfoNCE(), named("sgd"), {"micro_batch": 4}),
    **{
        f"float16, {name}": (
            cs.InfoNCE(cs.Cosine(cs.Learnable(0.5))),
            named(name),
            {"precision": "float16", "clip": 1.0},
        )
        for name in ("lars", "sgd", "adamw")
    },
    "float16, a foreign optimiser": (
        cs.InfoNCE(),
        lambda parameters: torch.optim.Adagrad(parameters, 0.05, foreach=False),
        {"precision": "float16"},
    ),
}


def steps(objective, optimiser, more, device, spoil=False):
    """The state after a few steps, what each waited for, and the losses."""
    options = FitOptions(device=device, **more)
    state = begin(networks(), copy.deepcopy(objective), optimiser, options)
    draw = torch.Generator().manual_seed(1)
    waits, losses = [], []
    for step in range(STEPS):
        x = torch.randn(8, 6, generator=draw)
        batch = [(x + 0.1 * torch.randn(8, 6, generator=draw)).to(device) for _ in range(2)]
        before = [p.detach().cpu().clone() for p in state.networks.parameters()]
        moments = {
            k: {name: torch.as_tensor(value).cpu().clone() for name, value in known.items()}
            for k, known in state.optimiser.state_dict()["state"].items()
        }
        if spoil and step == STEPS - 1:
            batch[0] = batch[0] * float("inf")
        if device == "toy":
            torch.ops.toy.reset()
        losses.append(take_step(state, state.networks, (*batch, None), options, STEPS))
        if device == "toy":
            waits.append(torch.ops.toy.waits())
        state.step += 1
    return state, waits, losses, before, moments


def compared(objective, optimiser, more):
    """Waits of the later steps there, and how far the weights are from those of the CPU."""
    state, waits, losses, *_ = steps(objective, optimiser, more, "toy")
    plain = {**more, "precision": "full"}  # the toy's autocast casts nothing
    here, _, right, *_ = steps(objective, optimiser, plain, "cpu")
    pairs = list(zip(state.networks.parameters(), here.networks.parameters(), strict=True))
    apart = max(float((a.detach().cpu() - b.detach()).abs().max()) for a, b in pairs)
    values = zip(read_losses(state, losses), read_losses(here, right), strict=True)
    apart = max(apart, *(abs(a - b) for a, b in values))
    return {"waits": waits[1:], "apart": apart}


def skipped(optimiser):
    """Whether a step with an infinite gradient in float16 moves nothing, and halves the scale."""
    more = {"precision": "float16"}
    objective = cs.BYOL()
    state, _, _, before, moments = steps(objective, optimiser, more, "toy", spoil=True)
    weights = all(
        bool((a == b.detach().cpu()).all())
        for a, b in zip(before, state.networks.parameters(), strict=True)
    )
    after = state.optimiser.state_dict()["state"]
    same = all(
        bool((value == torch.as_tensor(after[k][name]).cpu()).all())
        for k, known in moments.items()
        for name, value in known.items()
    )
    return {"weights": weights, "moments": same, "scale": state.scaler.get_scale()}


def main() -> None:
    register(sys.argv[1])
    result = {name: compared(*case) for name, case in CASES.items()}
    spoilt = {name: skipped(named(name)) for name in ("lars", "sgd", "adamw")}
    objective, optimiser, more = CASES["micro-batches"]
    options = FitOptions(device="toy", **more)
    state = begin(networks(), objective, optimiser, options)
    state.networks.encoders[0].register_forward_hook(lambda m, x, h: h + next(counted))
    x = torch.randn(8, 6).to("toy")
    loss = take_step(state, state.networks, (x, x, None), options, STEPS)
    try:
        read_losses(state, [loss])
    except cs.ChiaroError as error:
        moved = str(error)
    print(json.dumps({"steps": result, "spoilt": spoilt, "moved": moved}))


if __name__ == "__main__":
    main()
    # autograd's thread of the device still waits, and torch may destroy it at exit without joining
    sys.stdout.flush()
    os._exit(0)
