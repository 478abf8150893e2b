"""A short part of `benchmarks/fuzz.py`: changed files give all that they hold, or a sentence."""

import importlib.util
import signal
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parents[1] / "benchmarks" / "fuzz.py"
SLOW = ("journal", "run", "request")  # have tests of their own
EACH = 4
"""Changes of the files of each reader."""


@pytest.fixture
def fuzz(monkeypatch, tmp_path):
    if not hasattr(signal, "SIGALRM") or not Path("/proc/self/clear_refs").exists():
        pytest.skip("Linux measures the memory of a case")
    spec = importlib.util.spec_from_file_location("fuzz_of_benchmarks", FILE)
    made = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, made)
    spec.loader.exec_module(made)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("CHIARO_MEMORY", "128MB")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "work" / "cache"))
    monkeypatch.chdir(tmp_path)
    before = signal.signal(signal.SIGALRM, made.too_late)
    yield made
    signal.signal(signal.SIGALRM, before)


@pytest.mark.filterwarnings("ignore")
def test_changed_files_give_all_that_they_hold_or_a_sentence(fuzz, tmp_path):
    names = [t.name for t in fuzz.TARGETS if fuzz.is_here(t) and t.name not in SLOW]
    targets = [t for t in fuzz.TARGETS if t.name in names]
    fuzz.make_all(tmp_path / "good", names)
    (tmp_path / "work").mkdir()
    guard = fuzz.Guard(tmp_path / "work")
    fuzz.warm(targets, tmp_path / "good", tmp_path / "work")
    came = []
    for case in range(EACH * len(targets)):
        found = fuzz.run_case(case, 5, targets, tmp_path / "good", guard, limit=60)
        came.append(found["came"])
        assert not found.keys() & {"traceback", "late", "ran", "lost"}, found
    assert came.count("read") > len(targets) // 2
    assert came.count("refused") > len(targets) // 2
