"""`parse(repr(x)) == x` for every object; copies, pickles and saved states are the same object."""

import copy
import io
import pickle

import pytest
import torch

import chiaroscuro as cs
from chiaroscuro.errors import SpecError
from tolerances import close
from zoo import KERNELS, NEGATIVES, OBJECTIVES, call, pair

ZOO = {repr(x): x for x in (*KERNELS.values(), *NEGATIVES.values(), *OBJECTIVES.values())}
MODULES = {name: x for name, x in ZOO.items() if isinstance(x, torch.nn.Module)}
LEARNT = {name: x for name, x in MODULES.items() if list(x.parameters())}
every_object = pytest.mark.parametrize("obj", ZOO.values(), ids=ZOO)
every_module = pytest.mark.parametrize("obj", MODULES.values(), ids=MODULES)
every_learnt = pytest.mark.parametrize("obj", LEARNT.values(), ids=LEARNT)


def value(obj, dtype=torch.float64):
    """What the object computes."""
    z1, z2 = pair(dtype=dtype)
    return (obj.log(z1, z2) if isinstance(obj, cs.Kernel) else call(obj, z1, z2)).detach()


def trained(obj):
    """A copy after one step that changes every temperature by a number nobody would write down."""
    obj = copy.deepcopy(obj)
    optimiser = torch.optim.SGD(obj.parameters(), lr=0.01)
    z1, z2 = pair(dtype=torch.float32)
    loss = obj.log(z1, z2).mean() if isinstance(obj, cs.Kernel) else call(obj, z1, z2)
    loss.backward()
    optimiser.step()
    return obj


# ---- notation ----


@every_object
def test_parse_of_repr_is_the_object(obj):
    back = cs.parse(repr(obj))
    assert type(back) is type(obj)
    assert back == obj
    assert repr(back) == repr(obj)


@every_module
def test_what_was_parsed_computes_the_same(obj):
    assert torch.equal(value(cs.parse(repr(obj))), value(obj))


@every_learnt
def test_after_a_step_of_training_too(obj):
    """The temperature that was learnt is in the notation, to its last digit."""
    after = trained(obj)
    assert after != obj
    back = cs.parse(repr(after))
    assert back == after
    assert torch.equal(value(back), value(after))


def test_a_learnable_temperature_in_float64_keeps_its_digits():
    tau = cs.Learnable(0.07).double()
    with torch.no_grad():
        tau.log_ratio.fill_(0.1)
    back = cs.parse(repr(tau))
    assert back == tau
    close(back.double().value(), tau.value())


TYPOS = {
    "Gausian(tau=0.1)": "did you mean `Gaussian`?",
    "InfoNCE(kernal=Cosine())": "did you mean `kernel`?",
    "infonce()": "did you mean `InfoNCE`?",
    "InfoNCE(Cosine(), AllButSlef())": "did you mean `AllButSelf`?",
    "Learnabel(0.1)": "did you mean `Learnable`?",
    "Exponential(gama=0.5)": "did you mean `gamma`?",
}


@pytest.mark.parametrize(("text", "suggestion"), TYPOS.items(), ids=TYPOS)
def test_typos_give_suggestions(text, suggestion):
    with pytest.raises(SpecError) as caught:
        cs.parse(text)
    assert suggestion in str(caught.value)


def test_a_wrong_number_in_a_text_is_the_constructors_sentence():
    with pytest.raises(cs.InputError, match=r"Gaussian\(tau=-0.1\)"):
        cs.parse("InfoNCE(Gaussian(tau=-0.1))")


def test_a_function_prints_but_cannot_be_read_back():
    obj = cs.Generalised(psi=torch.log1p)
    assert "log1p" in repr(obj)
    with pytest.raises(SpecError):
        cs.parse(repr(obj))


# ---- equality ----


def test_equality_is_by_value():
    assert cs.Gaussian(1) == cs.Gaussian(1.0)
    assert cs.Gaussian([1, 2]) == cs.Gaussian((1.0, 2.0)) == cs.Gaussian(torch.tensor([1.0, 2.0]))
    assert cs.Gaussian(0.5) != cs.Gaussian(0.25)
    assert cs.Gaussian(0.5) != cs.Gaussian([0.5, 0.5])
    assert cs.Gaussian(0.5) != cs.Gaussian(cs.Learnable(0.5))
    assert cs.Gaussian(0.5) != cs.Laplace(0.5)
    assert cs.Gaussian(0.5) != "Gaussian(tau=0.5)"
    assert cs.InfoNCE() == cs.InfoNCE(cs.Cosine(tau=0.5), cs.AllButSelf(), "both")
    assert cs.InfoNCE() != cs.InfoNCE(anchors="first")
    assert cs.Sum(cs.Dot(), cs.Dot()) == cs.Sum(cs.Dot(), cs.Dot(), weights=(1, 1))
    assert cs.Sum(cs.Dot(), cs.Dot()) != cs.Sum(cs.Dot(), cs.Dot(), weights=(1, 2))
    assert cs.AllButSelf() == cs.AllButSelf()
    assert len({cs.AllButSelf(), cs.AllButSelf(), cs.OtherView()}) == 2


def test_every_two_objects_of_the_zoo_differ():
    objects = list(ZOO.values())
    for i, a in enumerate(objects):
        assert [b == a for b in objects].index(True) == i


# ---- copies and files ----


@every_object
def test_copies_and_pickles_are_equal(obj):
    for other in (copy.deepcopy(obj), copy.copy(obj), pickle.loads(pickle.dumps(obj))):
        assert other == obj
        assert repr(other) == repr(obj)


@every_module
def test_pickles_compute_the_same(obj):
    assert torch.equal(value(pickle.loads(pickle.dumps(obj))), value(obj))


@every_learnt
def test_a_deep_copy_is_trained_alone(obj):
    """A copy that shares its temperature, or that trains one and computes with another."""
    before = repr(obj)
    after = trained(obj)
    assert repr(obj) == before
    assert not torch.equal(value(after), value(obj))


@every_learnt
def test_the_state_goes_into_a_file_and_back(obj):
    after, file = trained(obj), io.BytesIO()
    torch.save(after.state_dict(), file)
    file.seek(0)
    fresh = copy.deepcopy(obj)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    assert fresh == after
    assert torch.equal(value(fresh), value(after))


@every_module
def test_every_parameter_is_in_the_state_and_reached_by_the_gradient(obj):
    names = {name for name, _ in obj.named_parameters()}
    assert names | {name for name, _ in obj.named_buffers()} == set(obj.state_dict())
    learnt = [name for name in names if name.endswith("log_ratio")]
    assert len(learnt) == repr(obj).count("Learnable(")
    assert all(name.endswith("bias") for name in names - {*learnt})
    z1, z2 = pair()
    out = obj.log(z1, z2).sum() if isinstance(obj, cs.Kernel) else call(obj, z1, z2)
    if names:
        for gradient in torch.autograd.grad(out, list(obj.parameters())):
            assert gradient.abs().max() > 0
