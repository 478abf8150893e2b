"""Embeddings of other tools: every kind of file, the usual names, shards, hostile files."""

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.artifacts.logs import read_history, read_settings
from chiaroscuro.artifacts.pieces import Beside, Pieces, blocks
from chiaroscuro.artifacts.sources import from_arrays, open_source, parse_names, read_labels
from chiaroscuro.errors import InputError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 4)).astype(np.float32)
Y = RNG.integers(0, 3, 30)


# ---- pieces ----


def pieces(lengths=(3, 0, 5, 2)):
    whole = RNG.normal(size=(sum(lengths), 2))
    starts = np.cumsum([0, *lengths])
    read = []

    def piece(k):
        read.append(k)
        return whole[starts[k] : starts[k + 1]]

    return Pieces(lengths, piece, (2,), whole.dtype), whole, read


def test_pieces_are_the_whole_by_slices_and_numbers():
    found, whole, _ = pieces()
    assert found.shape == whole.shape
    for rows in (slice(None), slice(2, 9), slice(1, 10, 3), slice(8, 3), [9, 0, 0, 4], []):
        assert np.array_equal(found[rows], whole[np.array(rows, int) if rows == [] else rows])
    mask = np.arange(10) % 3 == 0
    assert np.array_equal(found[mask], whole[mask])
    assert np.array_equal(np.asarray(found), whole)


def test_only_the_pieces_that_are_asked_for_are_read():
    found, _, read = pieces()
    assert read == []
    found[4:6]
    assert read == [2]
    found[[5, 7]]
    assert read == [2]  # held
    found[[9]]
    assert read == [2, 3]


def test_blocks_and_columns_beside_each_other():
    both = Beside([np.arange(5), np.ones(5, np.float32)])
    assert both.shape == (5, 2)
    assert both.dtype == np.float64
    parts = list(blocks(both, n_bytes=48))
    assert [at for at, _ in parts] == [0, 3]
    assert np.array_equal(np.concatenate([rows for _, rows in parts]), np.asarray(both))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_blocks_of_a_mapped_file_are_given_back(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(10_000_000, dtype=np.float32).reshape(-1, 8))
    resident = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    found = open_source(tmp_path / "a.npy").arrays["h"]
    before, largest, total = resident(), 0, 0.0
    for _, rows in blocks(found, 1 << 20):
        total += float(rows[0, 0])
        largest = max(largest, int(rows[-1, -1] > 0) * (resident() - before))
    assert total > 0
    assert largest < 16_000_000  # of 40 million bytes
    assert np.array_equal(found[:3, 0], [0, 8, 16])


# ---- kinds ----


def test_numpy_files_and_the_usual_names(tmp_path):
    np.savez(tmp_path / "a.npz", X=X, y=Y)
    found = Embeddings.load(tmp_path / "a.npz")
    assert np.array_equal(found.h, X)
    assert np.array_equal(found.labels, Y)
    np.save(tmp_path / "b.npy", X)
    assert np.array_equal(Embeddings.load(tmp_path / "b.npy").h, X)


def test_two_sides_are_pairs_and_of_two_widths_one_is_a_layer():
    same = from_arrays({"image_embeds": X, "text_embeds": X + 1})
    assert {"z1", "z2"} <= set(same.arrays)
    wide = from_arrays({"image_embeds": X, "text_embeds": np.ones((30, 7))})
    assert set(wide.arrays) == {"h", "layer_paired"}
    assert wide.renamed == {"h": "image_embeds", "layer_paired": "text_embeds"}


def test_names_that_are_asked_for_win(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, left=X, right_one=X + 1, who=Y)
    found = open_source(path, parse_names("right_one=h,who=labels")).take(None)
    assert np.array_equal(found.h, X + 1)
    assert np.array_equal(found.labels, Y)
    with pytest.raises(InputError, match=r"cannot have `nothing` as `h`: it holds `left`"):
        open_source(path, {"nothing": "h"})
    with pytest.raises(InputError, match="`vectors` is not a name"):
        open_source(path, {"left": "vectors"})
    with pytest.raises(InputError, match="THEIRS=OURS"):
        parse_names("X")


def test_two_matrices_without_a_name_need_a_map(tmp_path):
    np.savez(tmp_path / "a.npz", one=X, two=X)
    with pytest.raises(InputError, match=r"`one` \(30, 4\) float32, `two` .*--map NAME=h"):
        open_source(tmp_path / "a.npz")


def test_tensors_without_pickle(tmp_path):
    torch.save(
        {"embeddings": torch.from_numpy(X), "labels": torch.from_numpy(Y)}, tmp_path / "a.pt"
    )
    found = Embeddings.load(tmp_path / "a.pt")
    assert np.array_equal(found.h, X)
    assert np.array_equal(found.labels, Y)
    torch.save(torch.from_numpy(X).bfloat16(), tmp_path / "b.pt")
    assert Embeddings.load(tmp_path / "b.pt").h.dtype == np.float32


class Evil:
    def __reduce__(self):
        return (open, ("/tmp/chiaroscuro-was-here", "w"))


@pytest.mark.parametrize("content", [pickle.dumps(Evil()), b"", b"PK\3\4nonsense", b"\x80\x02}q."])
def test_what_is_no_tensor_is_refused_and_nothing_runs(tmp_path, content):
    (tmp_path / "a.pt").write_bytes(content)
    with pytest.raises(InputError, match=r"`a.pt` is not a file of tensors alone|needs embeddings"):
        Embeddings.load(tmp_path / "a.pt")


def test_csv_with_and_without_a_header(tmp_path):
    lines = ["id,label,a,b,c,d"]
    for i, (row, y) in enumerate(zip(X, Y, strict=True)):
        lines.append(f"s{i},{'xyz'[y]}," + ",".join(map(repr, row.tolist())))
    (tmp_path / "a.csv").write_text("\n".join(lines))
    found = Embeddings.load(tmp_path / "a.csv")
    assert np.allclose(found.h, X)
    assert found.class_names[found.labels].tolist() == ["xyz"[y] for y in Y]
    assert found.ids[3] == "s3"
    np.savetxt(tmp_path / "b.tsv", X, delimiter="\t")
    assert np.allclose(Embeddings.load(tmp_path / "b.tsv").h, X)
    rows = "\n".join(f'"{json.dumps(row.tolist())}",{y}' for row, y in zip(X, Y, strict=True))
    (tmp_path / "c.csv").write_text(f"embedding,label\n{rows}\n")
    assert np.allclose(Embeddings.load(tmp_path / "c.csv").h, X)
    (tmp_path / "d.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(InputError, match="2 cells in each line; row 1 has 1"):
        Embeddings.load(tmp_path / "d.csv")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", b"id,x\n1,\xff\n", "needs UTF-8; line 2"),
        ("a.csv", b'x,y\n1,"2\n', "unexpected end of data"),
        ("a.csv", b"x,x\n1,2\n", "each column once"),
        ("a.safetensors", b"\xff" * 40, "cannot be read, or is damaged"),
        ("a.pt", b"PK\3\4" + bytes(30), "is not a file of tensors alone"),
    ],
)
def test_damaged_tables_are_sentences(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=said):
        open_source(tmp_path / name)


def test_a_pipe_called_a_table_does_not_wait(tmp_path):
    for name in ("a.pt", "a.csv", "a.safetensors"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(InputError, match="not a regular file"):
            open_source(tmp_path / name)


def test_a_tensor_that_claims_more_than_its_file_is_refused(tmp_path):
    torch.save({"h": torch.zeros(1).expand(10**9, 8)}, tmp_path / "a.pt")
    with pytest.raises(InputError, match=r"claims \(1000000000, 8\) of float32, 32,000,000,000"):
        open_source(tmp_path / "a.pt")


def test_ids_of_more_than_64_bits_stay_exact(tmp_path):
    (tmp_path / "a.csv").write_text(f"id,x,y\n{2**64},1,2\n{2**64 + 1},3,4\n")
    assert open_source(tmp_path / "a.csv").take(None).ids.tolist() == [str(2**64), str(2**64 + 1)]


def test_a_folder_of_shards_is_one(tmp_path):
    for k in range(3):
        some = slice(10 * k, 10 * k + 10)
        np.savez(tmp_path / f"part-{k}.npz", embedding=X[some], label=Y[some])
    found = open_source(tmp_path)
    assert found.n == 30
    assert np.array_equal(found.take([25, 3]).h, X[[25, 3]])
    assert np.array_equal(found.take(None).labels, Y)
    np.savez(tmp_path / "part-3.npz", embedding=X[:, :3], label=Y)
    with pytest.raises(InputError, match=r"`part-3.npz` has .*\(3,\)"):
        open_source(tmp_path)
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(InputError, match=r"4 \.npz, 1 \.npy"):
        open_source(tmp_path)


def test_a_thousand_million_rows_open_without_memory(tmp_path):
    import tracemalloc

    path = tmp_path / "huge.npy"
    n, d = 1_000_000_000, 4
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": (n, d)}
        )
        file.truncate(file.tell() + 4 * n * d)  # a hole: no bytes on disk
    from chiaroscuro.diagnostics import read

    tracemalloc.start()
    found = read(path, rows=100)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.n == n
    assert found.embeddings.n == 100
    assert peak < 20_000_000


def test_an_unknown_ending_is_refused(tmp_path):
    (tmp_path / "a.xyz").write_bytes(b"1")
    with pytest.raises(InputError, match=r"ends in `.npz`, .*`.parquet`.*; received `a.xyz`"):
        open_source(tmp_path / "a.xyz")


# ---- labels ----


def test_labels_in_order_and_by_id(tmp_path):
    (tmp_path / "a.csv").write_text("label\n" + "\n".join("xyz"[y] for y in Y))
    found = read_labels(tmp_path / "a.csv", None, 30)
    assert found["class_names"][found["labels"]].tolist() == ["xyz"[y] for y in Y]
    ids = np.array([f"s{k}" for k in range(30)])
    order = RNG.permutation(29)  # s29 has no label
    lines = [f"s{k},{Y[k]}" for k in order]
    (tmp_path / "b.csv").write_text("id,label\n" + "\n".join(lines))
    joined = read_labels(tmp_path / "b.csv", lambda: ids, 30)["labels"]
    assert joined.tolist() == [*Y[:29].tolist(), -1]
    np.save(tmp_path / "c.npy", Y)
    assert np.array_equal(read_labels(tmp_path / "c.npy", None, 30)["labels"], Y)
    with pytest.raises(InputError, match="each of 31 rows; it has 30"):
        read_labels(tmp_path / "a.csv", None, 31)
    with pytest.raises(InputError, match="none of its 29 is"):
        read_labels(tmp_path / "b.csv", lambda: np.array(["t0"] * 30), 30)


# ---- logs of any loop ----


def test_histories_of_other_loops(tmp_path):
    lines = [json.dumps({"global_step": 10 * k, "train/loss": 2.0 / k}) for k in (1, 2)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n\n")
    assert [(r["step"], r["loss"]) for r in read_history(tmp_path / "a.jsonl")] == [
        (10, 2),
        (20, 1),
    ]
    state = {"log_history": [{"step": 1, "loss": 3.0}, {"step": 2, "eval_loss": 1.0}]}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    assert read_history(tmp_path / "trainer_state.json")[0]["loss"] == 3.0
    (tmp_path / "metrics.csv").write_text("epoch,step,train_loss\n0,1,2.5\n0,2,\n")
    assert read_history(tmp_path / "metrics.csv")[0]["loss"] == 2.5
    (tmp_path / "b.jsonl").write_text('{"step": 1}\n{"step": 2}')
    with pytest.raises(InputError, match="needs records with a `loss`; it has 2 records"):
        read_history(tmp_path / "b.jsonl")
    (tmp_path / "c.jsonl").write_text('{"loss": 1}\n{loss}')
    with pytest.raises(InputError, match="not JSON in line 2"):
        read_history(tmp_path / "c.jsonl")


def test_settings_of_other_loops(tmp_path):
    given = {"train": {"batch_size": 64, "learning_rate": 0.1}, "loss": {"temperature": 0.07}}
    (tmp_path / "a.json").write_text(json.dumps(given))
    assert read_settings(tmp_path / "a.json") == {
        "batch": 64,
        "optimiser": {"lr": 0.1},
        "temperature": 0.07,
    }
    (tmp_path / "b.toml").write_text("colour = 'red'")
    with pytest.raises(InputError, match=r"such as `batch_size`.*it has `colour`"):
        read_settings(tmp_path / "b.toml")
