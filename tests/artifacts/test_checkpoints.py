"""Checkpoints: what comes back is what was saved, bit by bit, or a sentence."""

import errno
import hashlib
import json
import math
import os
import random
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from chiaroscuro.artifacts import checkpoints
from chiaroscuro.artifacts.checkpoints import latest_good, load, save
from chiaroscuro.errors import ChiaroError, InputError

SRC = str(Path(checkpoints.__file__).resolve().parents[2])
ARRAYS = {
    "w": np.arange(12, dtype=np.float32).reshape(3, 4),
    "count": np.array(7, dtype=np.int64),
    "empty": np.zeros((0, 3), dtype=np.float16),
    "mask": np.array([True, False]),
    "bits": np.array([16256, 65535], dtype=np.uint16),
}
STATE = {
    "epoch": 3,
    "lr": 0.1,
    "rng": [1, 2**80, -math.inf],
    "name": "ä\n",
    "none": None,
    "t": True,
}


def same(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(
        a[k].dtype == b[k].dtype and a[k].shape == b[k].shape and a[k].tobytes() == b[k].tobytes()
        for k in a
    )


def python(code: str, *args: object) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": SRC},
        timeout=60,
    )


# ---- round trip ----


@pytest.mark.parametrize(
    "dtype", ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", ">f4", ">i8"]
)
def test_every_type_survives(tmp_path, dtype):
    array = np.frombuffer(random.Random(0).randbytes(64), dtype=np.uint8).copy()
    array = (array > 99).astype(dtype) if dtype == "?" else array.view(dtype)
    back = load(save(tmp_path, 1, {"a": array}, {})).arrays["a"]
    assert back.dtype == array.dtype.newbyteorder("=")
    assert back.tobytes() == array.astype(array.dtype.newbyteorder("=")).tobytes()
    assert back.flags.writeable


def test_arrays_and_state_survive(tmp_path):
    found = load(save(tmp_path, 12, ARRAYS, STATE))
    assert found.step == 12
    assert found.state == STATE
    assert same(found.arrays, ARRAYS)


def test_views_that_are_not_contiguous_survive(tmp_path):
    base = np.arange(24.0).reshape(4, 6)
    views = {
        "t": base.T,
        "s": base[::2, ::3],
        "r": base[::-1],
        "b": np.broadcast_to(base[0], (3, 6)),
    }
    found = load(save(tmp_path, 0, views, {})).arrays
    assert all(np.array_equal(found[name], views[name]) for name in views)


def test_the_same_content_has_the_same_bytes(tmp_path):
    a, b = (save(tmp_path / name, 5, ARRAYS, STATE) for name in "ab")
    assert a.name == b.name
    assert all((a / f.name).read_bytes() == f.read_bytes() for f in b.iterdir())


@pytest.mark.parametrize(
    ("arrays", "state", "words"),
    [
        ({"a": np.array([object()])}, {}, "`a` is object"),
        ({"a": np.array(["x"])}, {}, "`a` is <U1"),
        ({"a": np.zeros(1, complex)}, {}, "complex128"),
        ({"__metadata__": np.zeros(1)}, {}, "__metadata__"),
        ({}, {1: 2}, "received `1` in `state`"),
        ({}, {"a": {"b": (1, 2)}}, "`state.a.b` is a `tuple`"),
        ({}, {"a": [np.float32(1)]}, r"`state.a\[0\]` is a `float32`"),
    ],
)
def test_what_would_not_come_back_is_refused(tmp_path, arrays, state, words):
    with pytest.raises(InputError, match=words):
        save(tmp_path, 1, arrays, state)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", [-1, 1.0, True, "1"])
def test_a_wrong_step_is_named(tmp_path, step):
    with pytest.raises(InputError, match=str(step)):
        save(tmp_path, step, {}, {})


# ---- which are kept, which is newest ----


def test_the_last_good_ones_are_kept(tmp_path):
    paths = [save(tmp_path, step, {}, {}, keep=2) for step in (1, 2, 3)]
    assert [p.exists() for p in paths] == [False, True, True]
    (paths[2] / "state.json").write_text("x")
    fourth = save(tmp_path, 4, {}, {}, keep=2)
    assert paths[1].exists(), "the third is bad, so the second is still one of the last two good"
    save(tmp_path, 5, {}, {}, keep=2)
    assert not paths[1].exists()
    assert not paths[2].exists()
    assert fourth.exists()


def test_the_newest_is_the_one_saved_last(tmp_path):
    save(tmp_path, 300, {}, {"a": 1})
    last = save(tmp_path, 250, {}, {"a": 2})
    again = save(tmp_path, 250, {}, {"a": 2})
    found = latest_good(tmp_path)
    assert last != again
    assert found.path == again
    assert found.bad == ()


def test_an_empty_or_missing_folder_has_none(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        found = latest_good(folder)
        assert (found.path, found.checkpoint, found.bad) == (None, None, ())


def test_it_falls_back_and_says_which_were_bad(tmp_path):
    paths = [save(tmp_path, step, ARRAYS, STATE, keep=9) for step in range(4)]
    (paths[3] / "tensors.safetensors").write_bytes(b"")
    (paths[2] / "manifest.json").unlink()
    found = latest_good(tmp_path)
    assert found.path == paths[1]
    assert [name.name in text for name, text in zip(paths[:1:-1], found.bad, strict=True)] == [
        True,
        True,
    ]
    assert "`tensors.safetensors` has 0 bytes" in found.bad[0]
    assert "`manifest.json` is missing" in found.bad[1]


def test_all_bad_is_none_and_said(tmp_path):
    path = save(tmp_path, 1, {}, {})
    (path / "state.json").unlink()
    found = latest_good(tmp_path)
    assert found.checkpoint is None
    assert len(found.bad) == 1


def test_a_newer_format_is_refused_not_passed_over(tmp_path, monkeypatch):
    save(tmp_path, 1, {}, {})
    with monkeypatch.context() as m:
        m.setattr(checkpoints, "CHECKPOINT_FORMAT", 2)
        path = save(tmp_path, 2, {}, {})
    for call in (lambda: load(path), lambda: latest_good(tmp_path)):
        with pytest.raises(InputError, match=r"format 2; this version reads 1 to 1.*newer"):
            call()


# ---- damage ----


def flip(path: Path, rng: random.Random) -> None:
    file = rng.choice(sorted(path.iterdir()))
    data = bytearray(file.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)


def truncate(path: Path, rng: random.Random) -> None:
    file = rng.choice(sorted(path.iterdir()))
    file.write_bytes(file.read_bytes()[: rng.randrange(file.stat().st_size)])


def extend(path: Path, rng: random.Random) -> None:
    file = rng.choice(sorted(path.iterdir()))
    file.write_bytes(file.read_bytes() + rng.choice([b"\n", b" ", b"\0", rng.randbytes(9)]))


def swap(path: Path, rng: random.Random) -> None:
    one, other = rng.sample(sorted(path.iterdir()), 2)
    a, b = one.read_bytes(), other.read_bytes()
    one.write_bytes(b)
    other.write_bytes(a)


def remove(path: Path, rng: random.Random) -> None:
    rng.choice(sorted(path.iterdir())).unlink()


def add(path: Path, rng: random.Random) -> None:
    (path / f"extra{rng.randrange(9)}.bin").write_bytes(rng.randbytes(rng.randrange(9)))


def zero(path: Path, rng: random.Random) -> None:
    """As after a power cut on a careless file system: right size, no content."""
    file = rng.choice(sorted(path.iterdir()))
    file.write_bytes(bytes(file.stat().st_size))


def duplicate_key(path: Path, rng: random.Random) -> None:
    file = path / rng.choice(["state.json", "manifest.json"])
    file.write_bytes(file.read_bytes().replace(b"{", b'{"step": 12, ', 1))


def consistent_edit(path: Path, rng: random.Random) -> None:
    """Change a file and the manifest to match: only the name still tells."""
    file = path / rng.choice(["state.json", "tensors.safetensors"])
    data = bytearray(file.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    about = json.loads((path / "manifest.json").read_text())
    about["files"][file.name] = {
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    (path / "manifest.json").write_text(json.dumps(about, sort_keys=True, indent=1))


def other_step(path: Path, rng: random.Random) -> None:
    about = json.loads((path / "manifest.json").read_text())
    about[rng.choice(["step", "serial", "format"])] += rng.randrange(1, 9)
    (path / "manifest.json").write_text(json.dumps(about, sort_keys=True, indent=1))


def rename(path: Path, rng: random.Random) -> None:
    serial, _, step, digest = path.name.split("-")
    names = [
        f"{int(serial) + 1:05d}-step-{step}-{digest}",
        f"{serial}-step-{int(step) + rng.randrange(1, 99):08d}-{digest}",
        f"{serial}-step-{step}-{rng.randbytes(16).hex()}",
        f"{serial}-step-0{step}-{digest}",
        "best",
    ]
    path.rename(path.with_name(rng.choice(names)))


MUTATIONS = [flip, truncate, extend, swap, remove, add, zero]
MUTATIONS += [duplicate_key, consistent_edit, other_step, rename]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    return save(folder, 12, ARRAYS, STATE), save(folder, 13, {"w": np.ones(3)}, {"epoch": 4})


def test_of_a_thousand_mutated_checkpoints_none_is_accepted(tmp_path, two):
    good = tmp_path / two[0].name
    shutil.copytree(two[0], good)
    content = {file.name: file.read_bytes() for file in good.iterdir()}
    accepted, lines, mutated = [], set(), 0
    for seed in range(1100):
        mutate = MUTATIONS[seed % len(MUTATIONS)]
        mutate(good, random.Random(seed))
        (path,) = tmp_path.iterdir()
        now = {file.name: file.read_bytes() for file in path.iterdir()}
        if (path, now) != (good, content):  # not zeros onto zeros
            mutated += 1
            try:
                load(path)
                accepted.append((seed, mutate.__name__))
            except ChiaroError as error:
                lines.add(len(str(error).splitlines()))
        path.rename(good)
        for name in now.keys() - content.keys():
            (good / name).unlink()
        for name in content:
            if now.get(name) != content[name]:
                (good / name).write_bytes(content[name])
    assert load(good).state == STATE
    assert mutated >= 1000
    assert accepted == []
    assert lines == {1}


def test_files_of_two_checkpoints_do_not_mix(tmp_path, two):
    names = ["tensors.safetensors", "state.json", "manifest.json"]
    for mixed in ([0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]):
        copy = tmp_path / two[0].name
        shutil.copytree(two[0], copy)
        for which in mixed:
            shutil.copy(two[1] / names[which], copy / names[which])
        with pytest.raises(ChiaroError, match="not a good checkpoint"):
            load(copy)
        shutil.rmtree(copy)


def test_a_hidden_file_of_the_system_does_no_harm(tmp_path):
    path = save(tmp_path, 1, ARRAYS, STATE)
    (path / ".DS_Store").write_bytes(b"x")
    assert load(path).state == STATE


# ---- a save that fails ----


def test_disk_full_at_any_sync_keeps_the_earlier(tmp_path, monkeypatch):
    good = save(tmp_path, 1, ARRAYS, STATE)
    real, calls = os.fsync, []

    def fails_at(which):
        def fsync(handle):
            calls.append(handle)
            if len(calls) == which:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(handle)

        return fsync

    for which in range(1, 6):  # three files, their folder, the folder above
        calls.clear()
        monkeypatch.setattr(os, "fsync", fails_at(which))
        with pytest.raises(ChiaroError, match=r"No space left.*errno 28.*full.*1 earlier.*intact"):
            save(tmp_path, 2, ARRAYS, STATE)
        assert os.listdir(tmp_path) == [good.name]
        assert same(load(good).arrays, ARRAYS)
    calls.clear()
    monkeypatch.setattr(os, "fsync", fails_at(0))
    save(tmp_path, 2, ARRAYS, STATE)
    assert len(calls) == 5


def test_a_checkpoint_that_does_not_verify_is_removed_and_the_earlier_stay(tmp_path, monkeypatch):
    good = save(tmp_path, 1, ARRAYS, STATE, keep=1)
    real = checkpoints._write

    def rots(made, *args):
        digest = real(made, *args)
        (made / "tensors.safetensors").write_bytes(b"rot")
        return digest

    monkeypatch.setattr(checkpoints, "_write", rots)
    with pytest.raises(ChiaroError, match="3 bytes"):
        save(tmp_path, 2, ARRAYS, STATE, keep=1)
    assert os.listdir(tmp_path) == [good.name]
    assert latest_good(tmp_path).path == good


def test_disk_full_by_a_limit_on_file_size(tmp_path):
    good = save(tmp_path, 1, ARRAYS, STATE)
    run = python(
        """
        import resource, sys
        import numpy as np
        from chiaroscuro.artifacts.checkpoints import save
        from chiaroscuro.errors import ChiaroError
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        for arrays, state in (({"w": np.zeros(10**5)}, {}), ({}, {"text": "x" * 10**5})):
            try:
                save(sys.argv[1], 2, arrays, state)
            except ChiaroError as error:
                print(error)
        """,
        tmp_path,
    )
    assert run.stderr == ""
    lines = run.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert "step-00000002` cannot be written: File too large (errno 27)" in line
        assert "The 1 earlier checkpoints are intact." in line
    assert os.listdir(tmp_path) == [good.name]
    assert same(load(good).arrays, ARRAYS)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_at_any_moment_a_good_one_remains(tmp_path):
    """One child per operation of the file system, killed (-9) before it."""
    run = python(
        """
        import os, pathlib, sys
        import numpy as np
        from chiaroscuro.artifacts.checkpoints import latest_good, load, save
        top = pathlib.Path(sys.argv[1])
        calls = ["fsync", "rename", "mkdir", "open", "unlink", "rmdir", "scandir", "stat"]

        def child(folder, at):
            seen = 0
            def wrap(real):
                def call(*args, **kwargs):
                    nonlocal seen
                    seen += 1
                    if seen == at:
                        os.kill(os.getpid(), 9)
                    return real(*args, **kwargs)
                return call
            for name in calls:
                setattr(os, name, wrap(getattr(os, name)))
            save(folder, 2, {"w": np.full(1000, 2.0)}, {"step": 2}, keep=1)
            os._exit(0)

        steps = []
        for at in range(1, 500):
            folder = top / str(at)
            save(folder, 1, {"w": np.ones(1000)}, {"step": 1}, keep=1)
            pid = os.fork()
            if pid == 0:
                child(folder, at)
            status = os.waitpid(pid, 0)[1]
            found = latest_good(folder)
            assert found.bad == (), found.bad
            for path in folder.iterdir():
                if not path.name.startswith("."):
                    load(path)   # half a checkpoint never has a checkpoint's name
            step = found.checkpoint.step
            assert found.checkpoint.state == {"step": step}
            assert (found.checkpoint.arrays["w"] == step).all()
            steps.append(step)
            save(folder, 3, {}, {}, keep=1)   # and the next save clears up
            assert len(os.listdir(folder)) == 1, os.listdir(folder)
            if status == 0:
                break
        print(at, set(steps), steps.count(1), steps.count(2))
        """,
        tmp_path,
    )
    assert run.stderr == ""
    at, *_ = run.stdout.split()
    assert 15 < int(at) < 499, "it was killed at many moments, and in the end not at all"
    assert "{1, 2}" in run.stdout


def test_reading_and_writing_need_no_torch(tmp_path):
    run = python(
        """
        import sys
        sys.modules["torch"] = None   # an import of it fails
        import numpy as np
        from chiaroscuro.artifacts import Embeddings, Run, checkpoints
        path = checkpoints.save(sys.argv[1], 1, {"w": np.ones(2)}, {})
        print(checkpoints.load(path).step)
        """,
        tmp_path,
    )
    assert run.stderr == ""
    assert run.stdout == "1\n"


def test_nothing_here_unpickles():
    import ast

    for file in Path(checkpoints.__file__).parent.glob("*.py"):
        tree = ast.parse(file.read_text())
        names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        names |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        assert not names & {"pickle", "marshal", "shelve", "eval", "exec"}, file
        allowed = [k for n in ast.walk(tree) if isinstance(n, ast.keyword) for k in [n]]
        assert all(k.value.value is False for k in allowed if k.arg == "allow_pickle"), file


def forged(folder, change, tensors=None, state=None):
    """A checkpoint whose checksums all agree, after a change of its manifest or contents."""
    path = save(folder, 3, ARRAYS, STATE)
    if tensors is not None:
        (path / "tensors.safetensors").write_bytes(tensors)
    if state is not None:
        (path / "state.json").write_bytes(state)
    about = json.loads((path / "manifest.json").read_bytes())
    for name in about["files"]:
        content = (path / name).read_bytes()
        about["files"][name] = {
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
    about = change(about)
    text = about if isinstance(about, bytes) else json.dumps(about).encode()
    (path / "manifest.json").write_bytes(text)
    digest = hashlib.sha256(text).hexdigest()[:32]
    return path.rename(path.with_name(f"{path.name[:-32]}{digest}"))


def without(key):
    return lambda about: {k: v for k, v in about.items() if k != key}


@pytest.mark.parametrize(
    "change",
    [
        without("files"),
        without("step"),
        without("serial"),
        lambda about: [],
        lambda about: b"{",
        lambda about: b"[" * 9000,
        lambda about: about | {"files": []},
        lambda about: about | {"files": {}},
        lambda about: about | {"step": "3"},
        lambda about: about | {"step": -3},
        lambda about: about | {"step": 10**30},
        lambda about: about | {"files": about["files"] | {"../../../etc/passwd": {}}},
        lambda about: about | {"files": about["files"] | {"/dev/zero": {"bytes": 0, "sha256": ""}}},
        lambda about: about | {"files": dict.fromkeys(about["files"], 5)},
        lambda about: about | {"files": {k: {"bytes": "x", "sha256": 1} for k in about["files"]}},
    ],
)
def test_a_manifest_that_agrees_with_itself_is_still_checked(tmp_path, change):
    path = forged(tmp_path, change)
    with pytest.raises(ChiaroError, match="is not a good checkpoint"):
        load(path)
    assert latest_good(tmp_path).checkpoint is None


@pytest.mark.parametrize(
    "contents",
    [
        {"tensors": b""},
        {"tensors": b"\xff" * 8},
        {"tensors": (2).to_bytes(8, "little") + b"{}x"},
        {"state": b"{"},
        {"state": b"[]"},
        {"state": b"{}"},
        {"state": b'{"state": 3}'},
        {"state": b"[" * 100000},
        {"state": b'{"state": ' + b"9" * 5000 + b"}"},
    ],
)
def test_contents_that_agree_with_their_checksums_are_still_checked(tmp_path, contents):
    path = forged(tmp_path, lambda about: about, **contents)
    with pytest.raises(ChiaroError, match="is not a good checkpoint"):
        load(path)


@pytest.mark.parametrize("name", ["manifest.json", "state.json", "tensors.safetensors"])
def test_a_device_or_a_pipe_is_no_part_of_a_checkpoint(tmp_path, name):
    path = save(tmp_path, 3, ARRAYS, STATE)
    (path / name).unlink()
    os.mkfifo(path / name)
    with pytest.raises(ChiaroError, match=f"`{name}` is not a regular file"):
        load(path)
    (path / name).unlink()
    (path / name).symlink_to("/dev/zero")
    with pytest.raises(ChiaroError, match=f"`{name}` is not a regular file"):
        load(path)


def test_a_checkpoint_that_may_not_be_read_is_neither_passed_over_nor_removed(
    tmp_path, monkeypatch
):
    paths = [save(tmp_path, step, ARRAYS, STATE, keep=9) for step in range(3)]
    real = os.open

    def refused(path, *rest, **named):
        if str(path).startswith(str(paths[2])):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, *rest, **named)

    monkeypatch.setattr(os, "open", refused)
    monkeypatch.setattr(os, "access", lambda path, _: not str(path).startswith(str(paths[2])))
    with pytest.raises(ChiaroError, match="Permission denied"):
        latest_good(tmp_path)
    for step in (7, 8, 9):
        save(tmp_path, step, ARRAYS, STATE, keep=1)
    assert paths[2].exists()
    assert not paths[1].exists()
