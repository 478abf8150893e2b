"""CLIP against LaCLIP on emoji: do several captions a picture help to find it by its original one?

Both train on the same pictures for the same number of steps, with settings that differ in the
captions alone: the original, or one of all at random. Both are asked about held-out emoji, whose
base is in no training picture, by the original caption only. Settings were chosen on a validation
part of the training side (`held_out='validation'`), never on this test.

    CHIARO_DATA=... nice -n 10 python benchmarks/emoji.py
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from typing import Any

import numpy as np
import torch

import chiaroscuro as cs
from chiaroscuro.engine import load_networks, read_settings, tokens
from environment import save

METHODS = {"clip": "emoji-clip", "laclip": "emoji-laclip"}
WAYS = ("image_to_text", "text_to_image")
MEASURES = tuple(f"{way}.recall_{k}" for way in WAYS for k in (1, 10))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, help="fewer, for a rehearsal; nothing is saved then")
    call = parser.parse_args()
    torch.set_num_threads(1)
    runs: list[dict[str, Any]] = []
    for seed in range(call.seeds):  # interleaved: a slow spell falls on both alike
        for method in METHODS if seed % 2 == 0 else reversed(METHODS):
            runs.append(one(method, seed, call.epochs))
            print(line(runs[-1]), file=sys.stderr, flush=True)
    result = summary(runs)
    for measure, found in result["difference"].items():
        print(f"{measure}: laclip - clip = {100 * found['mean']:+.1f} points {found['seeds']}")
    if call.epochs is None:
        print(save("emoji", result, f"python benchmarks/emoji.py --seeds {call.seeds}"))


def one(method: str, seed: int, epochs: int | None) -> dict[str, Any]:
    """Train one network and ask it about the held-out side."""
    settings = read_settings(METHODS[method], [f"seed={seed}"])
    if epochs is not None:
        settings = read_settings(settings, [f"epochs={epochs}"])
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        run = cs.train(settings, folder)
        seconds = time.process_time() - began
        found = cs.diagnostics.evaluate(cs.embed(run), probes=["ridge"])
        last = run.history().records[-1]
        return {
            "method": method,
            "seed": seed,
            "steps": last["step"],
            "cpu_seconds": round(seconds, 1),
            "mean_loss": last["mean_loss"],
            "trained": asked(found["results"]["projector"]),
            "untrained": asked(found["results"]["untrained"]),
            "any_caption": any_caption(run, settings),
            "encoder": {k: found["results"]["encoder"][k] for k in ("knn_20", "linear")},
            "protocol": found["protocol"],
            "settings": settings.table(),
        }


def asked(row: dict[str, Any]) -> dict[str, Any]:
    return {**{way: row["retrieval"][way] for way in WAYS}, "zero_shot": row["zero_shot"]}


def any_caption(run: Any, settings: Any) -> dict[str, Any]:
    """The same with every caption of the held-out emoji as a candidate and as a query."""
    data = cs.data.open_data(settings.data.source).part("test")
    captions = data.column("captions")
    owner = np.repeat(np.arange(len(data)), [len(some) for some in captions])
    networks = load_networks(run)
    with torch.no_grad():
        x = tokens([text for some in captions for text in some])
        texts = torch.cat([networks.project(networks.encode(b, 1), 1) for b in x.split(256)])
    images = cs.embed(networks, data).z1
    found = cs.diagnostics.retrieval(images, texts, owner)
    return {way: found[way] for way in WAYS}


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and spread over seeds of each method, and of their differences seed by seed."""
    table = {
        (method, measure): [pick(r["trained"], measure) for r in runs if r["method"] == method]
        for method in METHODS
        for measure in MEASURES
    }
    gap = {m: np.subtract(table["laclip", m], table["clip", m]) for m in MEASURES}
    first = runs[0]
    return {
        "claim": "S3: with several captions as rewrites, retrieval beats the original alone at "
        "equal steps",
        "means": {method: {m: spread(table[method, m]) for m in MEASURES} for method in METHODS},
        "difference": {m: {"mean": float(gap[m].mean()), "seeds": gap[m].tolist()} for m in gap},
        "laclip_wins_on_every_seed": {m: bool((gap[m] > 0).all()) for m in gap},
        "chance": {way: first["trained"][way]["chance"] for way in WAYS},
        "untrained": {
            m: spread([pick(r["untrained"], m) for r in runs if r["method"] == "clip"])
            for m in MEASURES
        },
        "runs": runs,
    }


def pick(row: dict[str, Any], measure: str) -> float:
    way, key = measure.split(".")
    return row[way][key]


def spread(values: list[float]) -> dict[str, Any]:
    return {
        "mean": float(np.mean(values)),
        "std": float(np.std(values, ddof=1)) if len(values) > 1 else None,
        "seeds": [float(value) for value in values],
    }


def line(run: dict[str, Any]) -> str:
    shown = ", ".join(f"{m} {100 * pick(run['trained'], m):.1f} %" for m in MEASURES)
    return f"{run['method']:<7} seed {run['seed']} {run['steps']} steps: {shown}"


if __name__ == "__main__":
    main()
