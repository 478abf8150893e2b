"""Does the diagnosis find what is planted, and is it silent where nothing is wrong?

Nineteen pathologies, and healthy cases. Detected: the planted finding, at `warning` or above, is
among the first two. False alarm: any `warning` or worse on a healthy case. There are three parts:

    fixed   seeds 0, 1, 5, 6 and healthy cases of even numbers: thresholds were fixed on these
    judged  seeds 2 to 4 and 7 to 9, healthy cases of odd numbers: meant to judge. But seeds 2 to 4
            and 18 of the 24 healthy ones had been measured, and their numbers looked at, before
            `CLIFF` went from 20 to 10, `SKEW` from 8 to 4 and a second sign of a leaked label was
            added; `HARDER` came while the others were being measured. It flatters, if it does.
    fresh   seeds 12 to 14 and 22 healthy cases, with new draws and new networks, made after the
            rules were frozen and run once: the number to quote

Since then a rule for runs of few steps was added, and two that read the history of a run were made
to see more (found while closing the loop); the numbers of all three parts stayed as they were.
`rules` in the result is a fingerprint of the rules. The plants are ours, so that what is detected
is what we thought of. Each case is kept in `out/advice`: the work can be cut into pieces.

    CHIARO_DATA=... python benchmarks/advice.py --half fixed
    CHIARO_DATA=... python benchmarks/advice.py            # all that is missing, then the table
    CHIARO_DATA=... python benchmarks/advice.py --loop     # sick trainings, cured by the advice
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

import chiaroscuro as cs
from chiaroscuro.diagnostics import Known, diagnose, findings
from environment import save
from planted import FRESH, HEALTHY, KEPT, PATHOLOGIES, Case, case, healthy

PARTS = ("fixed", "judged", "fresh")
SEEDS = {"fixed": (0, 1, 5, 6), "judged": (2, 3, 4, 7, 8, 9), "fresh": (12, 13, 14)}


def names(part: str) -> list[str]:
    """Every case of a part, or of all of them."""
    if part == "all":
        return [name for one in PARTS for name in names(one)]
    sick = [f"{name}/{seed}" for seed in SEEDS[part] for name in PATHOLOGIES]
    odd = part == "judged"
    well = FRESH if part == "fresh" else [name for name in HEALTHY if int(name[-1]) % 2 == odd]
    return sick + [f"healthy/{name}" for name in well]


def made(name: str) -> Case:
    kind, which = name.split("/")
    return healthy(which) if kind == "healthy" else case(kind, int(which))


def looked(name: str, again: bool) -> dict[str, Any]:
    """The diagnosis of a case, from disk if it is there; the rules are always applied anew."""
    path = KEPT / "cases" / f"{name.replace('/', '-')}.json"
    if again or not path.exists():
        started = time.process_time()
        arrays, about = made(name)
        found = diagnose(arrays, about)
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = {
            "measures": found.json()["measures"],
            "settings": _flat(about.settings),
            "given": sorted(found.given),
            "seconds": time.process_time() - started,
        }
        path.write_text(json.dumps(kept))
    kept = json.loads(path.read_text())
    ranked = findings(Known(kept["measures"], kept["settings"]))
    kept["findings"] = [(one.name, one.severity) for one in ranked]
    return kept


def _flat(settings: Any) -> dict[str, Any]:
    from chiaroscuro.diagnostics.assembly.diagnosis import flat

    return flat(settings)


def grave(found: dict[str, Any]) -> list[str]:
    return [name for name, severity in found["findings"] if severity != "note"]


def judged(half: str, again: bool, only: str | None, cached: bool) -> list[dict[str, Any]]:
    rows = []
    for name in names(half):
        if only is not None and only not in name:
            continue
        if cached and not (KEPT / "cases" / f"{name.replace('/', '-')}.json").exists():
            continue
        found = looked(name, again)
        kind = name.split("/")[0]
        first = [one for one, severity in found["findings"][:2] if severity != "note"]
        right = not grave(found) if kind == "healthy" else kind in first
        rows.append({"case": name, "right": right, "found": grave(found), "given": found["given"]})
        if not right:
            print(f"{name}: {grave(found) or 'nothing'}", file=sys.stderr)
    return rows


def table(rows: list[dict[str, Any]]) -> dict[str, Any]:
    kinds: dict[str, Any] = {}
    for row in rows:
        kind = row["case"].split("/")[0]
        one = kinds.setdefault(kind, {"cases": 0, "right": 0})
        one["cases"] += 1
        one["right"] += row["right"]
        one["given"] = "various" if kind == "healthy" else ", ".join(PATHOLOGIES[kind][0])
    sick = [row for row in rows if not row["case"].startswith("healthy")]
    well = [row for row in rows if row["case"].startswith("healthy")]
    width = max(map(len, kinds))
    for kind, one in kinds.items():
        print(f"{kind:<{width}}  {one['right']:>3} of {one['cases']:<3}  given {one['given']}")
    shares = {
        "detected": _share(sick),
        "false_alarms": 1 - _share(well) if well else None,
        "n_sick": len(sick),
        "n_healthy": len(well),
    }
    print(shares)
    return {"shares": shares, "kinds": kinds}


def _share(rows: list[dict[str, Any]]) -> float | None:
    return sum(row["right"] for row in rows) / len(rows) if rows else None


def rules() -> str:
    """A fingerprint of the rules, thresholds and all: what a result belongs to."""
    folder = Path(cs.__file__).parent / "diagnostics" / "advice"
    text = "".join(path.read_text() for path in sorted(folder.glob("*.py")))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", choices=(*PARTS, "all"), default="all")
    parser.add_argument("--only", metavar="PART", help="cases whose name holds this")
    parser.add_argument("--again", action="store_true", help="measure anew what is kept")
    parser.add_argument("--cached", action="store_true", help="only what is kept")
    parser.add_argument("--loop", action="store_true", help="sick trainings, cured by the advice")
    parser.add_argument("--epochs", type=int, help="of --loop; fewer, for a rehearsal")
    call = parser.parse_args()
    torch.set_num_threads(1)
    if call.loop:
        from cured import loop

        loop(call.only, call.epochs)
        return
    rows = judged(call.half, call.again, call.only, call.cached)
    found = table(rows)
    if call.half == "all" and call.only is None and len(rows) == len(names("all")):
        halves = {
            half: table([row for row in rows if row["case"] in set(names(half))]) for half in PARTS
        }
        result = {"rules": rules(), **halves, "all": found, "cases": rows}
        print(save("advice", result, "python benchmarks/advice.py"))


if __name__ == "__main__":
    main()
