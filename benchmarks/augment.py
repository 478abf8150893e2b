"""Views per second on one core: our two backends against lightly, torchvision, kornia and others.

    benchmarks/.venv/bin/python benchmarks/augment.py

The recipe is SimCLR's at its two usual places: 32 px as for CIFAR (strength 0.5, no blur) and 96 px
as for larger pictures (strength 1, blur with probability 0.5, window 9). Everybody crops, resizes
with antialiasing, mirrors, jitters the four colours in random order with a clamp after each, makes
some pictures gray, normalises, and ends with float32 tensors; drawing the random numbers is part of
the time. Everybody runs on one thread, on pictures that are in memory already in the form it likes
best: PIL for lightly, uint8 tensors for torchvision and for us, uint8 arrays for albumentations,
batches of floats for kornia.

Before anything is timed, our pictures are compared: the fast backend with the torch one, and the
torch one with torchvision's own functions under the same parameters. A mismatch ends the run.

Needs the peers of benchmarks/.venv, and `kornia` and `albumentations` there.
"""

from __future__ import annotations

import argparse
import importlib
import os
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")

import numpy as np
import torch
from torch import Tensor

from chiaroscuro.views import SimCLR, backend, reference, render
from environment import interleave, save
from peers import import_lightly

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
RECIPES = {
    "32 px": SimCLR(32, strength=0.5, mean=MEAN, std=STD),
    "96 px with blur": SimCLR(96, strength=1.0, blur=0.5, mean=MEAN, std=STD),
}
TOLERANCE = 1e-5
"""Largest difference of two pictures in [0, 1] that counts as float32 rounding."""
TARGETS = {"32 px": 15, "96 px with blur": 10}
"""How many times lightly's speed the fast backend has to reach."""


def pictures(n: int, side: int) -> Tensor:
    """Smooth coloured pictures with some grain, uint8: the content does not change the times."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.randn(n, 3, 6, 6, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, (side, side), mode="bicubic")
    grain = torch.randn(n, 3, side, side, generator=generator)
    return ((0.5 + 0.25 * smooth + 0.05 * grain).clamp(0, 1) * 255).round().byte()


# ---- the peers, each as a function that makes one view of every picture ----


def lightly(policy: SimCLR, images: Tensor) -> Callable[[], Any]:
    """lightly's SimCLRTransform on PIL pictures; a call makes two views, each counted."""
    transforms = importlib.import_module("lightly.transforms")
    image = importlib.import_module("PIL.Image")
    make = transforms.SimCLRTransform(
        input_size=policy.size, cj_strength=policy.strength, gaussian_blur=policy.blur
    )
    given = [image.fromarray(x.permute(1, 2, 0).numpy()) for x in images[: len(images) // 2]]
    return lambda: [make(x) for x in given]


def torchvision(policy: SimCLR, images: Tensor) -> Callable[[], Any]:
    """torchvision's transforms v2 on uint8 tensors, one at a time."""
    v2 = importlib.import_module("torchvision.transforms.v2")
    full = policy.explicit()
    steps = [
        v2.RandomResizedCrop(full.size, scale=full.scale, antialias=True),
        v2.RandomHorizontalFlip(full.flip),
        v2.RandomApply(
            [v2.ColorJitter(full.brightness, full.contrast, full.saturation, full.hue)], full.jitter
        ),
        v2.RandomGrayscale(full.grayscale),
    ]
    if full.blur:
        steps.append(v2.RandomApply([v2.GaussianBlur(full.kernel, full.sigma)], full.blur))
    steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    make = v2.Compose(steps)
    return lambda: [make(x) for x in images]


def kornia(policy: SimCLR, images: Tensor) -> Callable[[], Any]:
    """kornia's augmentations on a batch of floats, each picture with its own numbers."""
    K = importlib.import_module("kornia.augmentation")
    full = policy.explicit()
    colours = (full.brightness, full.contrast, full.saturation, full.hue)
    steps = [
        K.RandomResizedCrop((full.size, full.size), scale=full.scale, cropping_mode="resample"),
        K.RandomHorizontalFlip(p=full.flip),
        K.ColorJiggle(*colours, p=full.jitter),
        K.RandomGrayscale(p=full.grayscale),
    ]
    if full.blur:
        window = (full.kernel, full.kernel)
        steps.append(K.RandomGaussianBlur(window, full.sigma, p=full.blur))
    steps.append(K.Normalize(torch.tensor(MEAN), torch.tensor(STD)))
    make = K.AugmentationSequential(*steps, data_keys=["input"])
    given = images.float() / 255
    return lambda: make(given)


def albumentations(policy: SimCLR, images: Tensor) -> Callable[[], Any]:
    """albumentations on uint8 arrays (h, w, c), one at a time, to float32 tensors."""
    A = importlib.import_module("albumentations")
    importlib.import_module("cv2").setNumThreads(0)
    full = policy.explicit()
    steps = [
        A.RandomResizedCrop(size=(full.size, full.size), scale=full.scale),
        A.HorizontalFlip(p=full.flip),
        A.ColorJitter(
            (max(0, 1 - full.brightness), 1 + full.brightness),
            (max(0, 1 - full.contrast), 1 + full.contrast),
            (max(0, 1 - full.saturation), 1 + full.saturation),
            (-full.hue, full.hue),
            p=full.jitter,
        ),
        A.ToGray(p=full.grayscale),
    ]
    if full.blur:
        window = (full.kernel, full.kernel)
        steps.append(A.GaussianBlur(blur_limit=window, sigma_limit=full.sigma, p=full.blur))
    steps.append(A.Normalize(MEAN, STD))
    make = A.Compose(steps)
    given = [np.ascontiguousarray(x.permute(1, 2, 0).numpy()) for x in images]
    return lambda: [torch.from_numpy(make(image=x)["image"].transpose(2, 0, 1)) for x in given]


def ours_fast(policy: SimCLR, images: Tensor) -> Callable[[], Any]:
    """Our fast backend, parameters drawn and views normalised."""
    ids = np.arange(len(images))
    return lambda: policy(images, ids)


def ours_torch(policy: SimCLR, images: Tensor) -> Callable[[], Any]:
    """Our batched torch backend, the reference."""
    ids, sides = np.arange(len(images)), tuple(images.shape[2:])
    draw = lambda: policy.sample(sides, policy.draws(ids, 0, 0, 0))
    return lambda: reference.render(policy, images, draw())


PEERS = (lightly, torchvision, kornia, albumentations)
# how many pictures a call sees: enough to drown the overhead of a call, and no more
COUNTS = {"ours_fast": 256, "ours_torch": 256, "kornia": 256}


# ---- are the pictures right ----


def largest_differences(policy: SimCLR, images: Tensor) -> dict[str, float]:
    """How far apart our backends are, and our reference and torchvision's own functions."""
    ids, sides = np.arange(len(images)), tuple(images.shape[2:])
    plain = SimCLR(policy.size, strength=policy.strength, blur=policy.blur)
    parameters = plain.sample(sides, plain.draws(ids, 1, 0, 0))
    exact = reference.render(plain, images, parameters)
    fast = render(plain, images, parameters)
    whole = render(plain, images, parameters, out=torch.empty(exact.shape, dtype=torch.uint8))
    theirs = torch.stack(
        [replay(plain, x, p) for x, p in zip(images / 255, parameters, strict=True)]
    )
    return {
        "fast float32, torch": float((fast - exact).abs().max()),
        "fast uint8, torch": float((whole / 255 - exact).abs().max()),
        "torch, torchvision": float((exact - theirs).abs().max()),
    }


def replay(policy: SimCLR, x: Tensor, p: Any) -> Tensor:
    """One view by torchvision's functions on a float tensor, under our parameters."""
    F = importlib.import_module("torchvision.transforms.v2.functional")
    full = policy.explicit()
    box = (int(p[name]) for name in ("top", "left", "height", "width"))
    x = F.resized_crop(x, *box, [full.size, full.size], antialias=True)
    x = F.horizontal_flip(x) if p["flip"] else x
    operations = (
        lambda x: F.adjust_brightness(x, float(p["brightness"])),
        lambda x: F.adjust_contrast(x, float(p["contrast"])),
        lambda x: F.adjust_saturation(x, float(p["saturation"])),
        lambda x: F.adjust_hue(x, float(p["hue"])),
    )
    for number in p["order"] if p["jitter"] else ():
        x = operations[number](x)
    x = F.rgb_to_grayscale(x, 3) if p["grayscale"] else x
    if p["sigma"] > 0:
        x = F.gaussian_blur(x, [full.kernel] * 2, [float(p["sigma"])] * 2)
    return x


# ---- the run ----


def measure(policy: SimCLR, repeats: int) -> dict[str, Any]:
    """Views per second of each, and how far our pictures are from what they should be."""
    some = pictures(256, policy.size)
    differences = largest_differences(policy, some)
    limits = {"fast uint8, torch": TOLERANCE + 0.5 / 255}
    for name, value in differences.items():
        if not value <= limits.get(name, TOLERANCE):
            raise SystemExit(f"pictures differ: {name} by {value:.2g}")
    functions, counts = {}, {}
    for make in (ours_fast, ours_torch, *PEERS):
        name = make.__name__
        counts[name] = COUNTS.get(name, 64)
        functions[name] = make(policy, pictures(counts[name], policy.size))
    seconds = interleave(functions, repeats)
    speed = {name: counts[name] / best for name, best in seconds.items()}
    return {
        "largest_difference": differences,
        "policy": repr(policy),
        "times_lightly": {name: value / speed["lightly"] for name, value in speed.items()},
        "views_per_second": speed,
    }


def main() -> None:
    """Compare, time, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--no-save", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")  # the peers' own
    import_lightly()  # which makes torchvision importable as well
    got = {name: measure(policy, arguments.repeats) for name, policy in RECIPES.items()}
    for name, result in got.items():
        print(f"{name}: views per second on one core, and times lightly")
        for each, value in sorted(result["views_per_second"].items(), key=lambda item: -item[1]):
            print(f"  {each:16}{value:12,.0f}{result['times_lightly'][each]:9.1f}")
        for each, value in result["largest_difference"].items():
            print(f"  largest difference, {each}: {value:.2g}")
        reached = result["times_lightly"]["ours_fast"]
        print(f"  target {TARGETS[name]} times lightly: {reached:.0f} times")
        result["target"], result["reached"] = TARGETS[name], reached >= TARGETS[name]
    if arguments.no_save:
        return
    fast = backend()
    content = {
        "backend": {"name": fast.name, "why": fast.why},
        "repeats": arguments.repeats,
        "sizes": got,
        "versions": {name: version(name) for name in ("albumentations", "kornia", "pillow")},
    }
    print(save("augment", content, "python benchmarks/augment.py").relative_to(os.getcwd()))


if __name__ == "__main__":
    main()
