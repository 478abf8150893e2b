"""Shards elsewhere, on two ranks: each is asked about and indexed by one of them."""

import io
import json
import tarfile

import numpy as np
import pytest
from PIL import Image

import forked
from chiaroscuro.data import read_tar

N, SHARDS = 40, 5
SCRIPT = """
import json, os, sys
from pathlib import Path
from fsspec.implementations.local import LocalFileSystem
from chiaroscuro.engine import joined_ranks, opened_by_ranks, rank
from chiaroscuro.engine import read_settings, train
from chiaroscuro.data import open_data
from chiaroscuro.errors import InputError

folder = Path(sys.argv[1])
os.environ["XDG_CACHE_HOME"] = str(folder / f"machine {os.environ['RANK']}")
asked = {"info": 0, "open": []}
info, opened = LocalFileSystem.info, LocalFileSystem._open

def count_info(self, path, **more):
    asked["info"] += str(path).endswith(".tar")
    return info(self, path, **more)

def count_open(self, path, *more, **named):
    asked["open"].append(Path(path).name)
    return opened(self, path, *more, **named)

LocalFileSystem.info, LocalFileSystem._open = count_info, count_open
sets = json.loads(sys.argv[2])
with joined_ranks():
    data = opened_by_ranks(lambda: open_data(sys.argv[3]))
    told = {"opening": dict(asked, open=list(asked["open"])), "ids": data.ids.tolist()}
    told |= {"labels": data.labels.tolist(), "skipped": [one.path for one in data.skipped]}
    train(read_settings("simclr", sets), f"{folder}/two")
    (folder / f"told-{rank()}.json").write_text(json.dumps(told))
    # one of the ranks has an index, the other has none, and one reads other data
    os.environ["XDG_CACHE_HOME"] = str(folder / "other") if rank() else os.environ["XDG_CACHE_HOME"]
    here = sys.argv[3] if rank() else sys.argv[3].replace("..4", "..3")
    assert len(opened_by_ranks(lambda: open_data(here))) == (38 if rank() else 30)
    try:
        opened_by_ranks(lambda: open_data(sys.argv[3].replace("..4", "..5")))
    except InputError as error:
        assert "a-5.tar" in str(error), error
    else:
        raise SystemExit("an archive was missing, and nothing was raised")
"""


def plant(root):
    for shard in range(SHARDS):
        with tarfile.open(root / f"a-{shard}.tar", "w") as archive:
            for i in range(shard, N, SHARDS):
                picture = io.BytesIO()
                Image.fromarray(np.full((8, 8, 3), i, np.uint8)).save(picture, "PNG")
                broken = i in (7, 23)
                files = {"png": b"none" if broken else picture.getvalue(), "cls": str(i % 4)}
                for kind, content in files.items():
                    content = content.encode() if isinstance(content, str) else content
                    member = tarfile.TarInfo(f"{i:03d}.{kind}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))


def test_each_shard_is_indexed_by_one_rank(tmp_path, monkeypatch):
    pytest.importorskip("fsspec")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "alone"))
    (tmp_path / "far").mkdir()
    plant(tmp_path / "far")
    address = f"file://{tmp_path}/far/a-{{0..4}}.tar"
    sets = [
        *("epochs=1", "batch=8", "views.first=SimCLR(size=8, strength=0.1)", "saving.record=1"),
        *("network.encoder=MLP(d_in=192, d=8, depth=1)", f"data.source={address}"),
        *("network.projector=Projector(d=4, depth=1, last='none')", "optimiser.name=sgd"),
    ]
    script = tmp_path / "ranks.py"
    script.write_text(SCRIPT)
    done = forked.run(script, str(tmp_path), json.dumps(sets), address, world=2)
    assert done.codes == [0, 0], done.err
    alone = read_tar(address)
    told = [json.loads((tmp_path / f"told-{r}.json").read_text()) for r in range(2)]
    for one in told:
        assert one["ids"] == alone.ids.tolist()
        assert one["labels"] == alone.labels.tolist()
        assert one["skipped"] == [one.path for one in alone.skipped]
        assert len(one["skipped"]) == 2
    assert sum(one["opening"]["info"] for one in told) == SHARDS
    opened = sorted(name for one in told for name in one["opening"]["open"])
    assert opened == sorted({f"a-{shard}.tar" for shard in range(SHARDS)})
    assert {len(one["opening"]["open"]) for one in told} == {2, 3}
