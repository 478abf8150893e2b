"""Parameters that stand in for an objective's own receive the gradient, where it is recomputed too.

On several ranks the gathered rows and the parameters share one message: there they stand in.
"""

import pytest
import torch

import chiaroscuro as cs
from zoo import call, pair

TAU = cs.Learnable(0.3)
OBJECTIVES = [
    cs.SigLIP(),
    cs.SupCon(cs.Cosine(tau=TAU)),
    cs.SupCon(cs.Gaussian(tau=TAU)),
    cs.InfoNCE(cs.Cosine(tau=TAU)),
    cs.Grouped(cs.InfoNCE(cs.Cosine(tau=TAU))),
    cs.Grouped(cs.SigLIP()),
]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_stand_ins_receive_the_gradient(objective):
    z1, z2 = pair()
    call(objective, z1, z2).backward()
    names = [name for name, _ in objective.named_parameters()]
    right = {name: p.grad.clone() for name, p in objective.named_parameters()}
    objective.zero_grad()
    own = {name: p.detach().clone().requires_grad_() for name, p in objective.named_parameters()}
    through = {name: p * 1.0 for name, p in own.items()}
    y = torch.tensor([(i * i) % 3 + 4 for i in range(5)])
    arguments = (z1, z2, y) if "labels" in objective.takes else (z1, z2)
    torch.func.functional_call(objective, through, arguments).backward()
    assert all(p.grad is None or not p.grad.any() for p in objective.parameters())
    for name in names:
        assert bool(right[name].any())
        torch.testing.assert_close(own[name].grad, right[name])
