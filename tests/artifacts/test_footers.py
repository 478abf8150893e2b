"""Sizes of the columns of parquet files, and footers that are damaged."""

import io
import random
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from chiaroscuro.artifacts.footers import column_sizes
from chiaroscuro.errors import ChiaroError, InputError

pytestmark = pytest.mark.extra("parquet")


def parquet(rows=50):
    import pyarrow
    from pyarrow import parquet

    nested = [{"bytes": bytes(i), "path": None} for i in range(rows)]
    table = pyarrow.table(
        {"image": nested, "a.b": np.arange(rows), "words": [["x"] * (i % 3) for i in range(rows)]}
    )
    out = io.BytesIO()
    parquet.write_table(table, out, row_group_size=20)
    return out.getvalue()


def test_sizes_are_those_that_the_library_says():
    from pyarrow import parquet as library

    data = parquet()
    about = library.ParquetFile(io.BytesIO(data)).metadata
    found = column_sizes(io.BytesIO(data), "`a`")
    assert [set(group) for group in found] == [{"image", "a.b", "words"}] * 3
    for g, group in enumerate(found):
        columns = [about.row_group(g).column(c) for c in range(about.num_columns)]
        assert sum(group.values()) == sum(c.total_uncompressed_size for c in columns)
        named = {c.path_in_schema: c.total_uncompressed_size for c in columns}
        assert group["a.b"] == named["a.b"]
        assert group["image"] == named["image.bytes"] + named["image.path"]


def test_damaged_footers_are_sentences():
    data, luck, said = parquet(), random.Random(0), 0
    for content in (
        b"",
        b"PAR1",
        b"PAR1" + b"\xff" * 4 + b"PAR1",
        data[:-1],
        data[:-9] + data[-8:],
    ):
        with pytest.raises(InputError, match="cannot be read as parquet"):
            column_sizes(io.BytesIO(content), "`a`")
    for deep in (b"\x1c" * 5000, b"\x19" * 5000, b"\x1b\x01\xbb" + b"\x01\xbb" * 2000):
        size = len(deep).to_bytes(4, "little")
        with pytest.raises(InputError, match="is damaged"):
            column_sizes(io.BytesIO(b"PAR1" + deep + size + b"PAR1"), "`a`")
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for _ in range(2000):
        changed = bytearray(data)
        for _ in range(luck.choice([1, 1, 4])):
            changed[luck.randrange(start, len(data) - 8)] ^= 1 << luck.randrange(8)
        try:
            column_sizes(io.BytesIO(changed), "`a`")
        except ChiaroError:
            said += 1
    assert said > 100


DAMAGED = """
    import random, sys
    import numpy as np
    from pathlib import Path
    from chiaroscuro.artifacts.sources import open_source
    from chiaroscuro.data import open_data
    from chiaroscuro.errors import ChiaroError
    def data_of(path):
        read = open_data(path)
        read[np.arange(len(read))]
    def embeddings_of(path):
        open_source(path).take(None)
    path = Path(sys.argv[1])
    data, luck, said = path.read_bytes(), random.Random(5), 0
    for _ in range(120):
        changed = bytearray(data)
        for _ in range(luck.choice([1, 3])):
            changed[luck.randrange(len(data))] ^= 1 << luck.randrange(8)
        path.write_bytes(changed)
        for work in (data_of, embeddings_of):
            try:
                work(path)
            except ChiaroError:
                said += 1
    print("said", said)
"""


def test_no_damage_ends_the_process(tmp_path):
    """pyarrow aborts where it is asked about the columns of some damaged footers."""
    import pyarrow
    from PIL import Image
    from pyarrow import parquet as library

    encoded = []
    for i in range(20):
        out = io.BytesIO()
        Image.fromarray(np.full((8, 8, 3), i, np.uint8)).save(out, "PNG")
        encoded.append({"bytes": out.getvalue(), "path": None})
    vectors = list(np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32))
    table = pyarrow.table({"image": encoded, "label": [i % 3 for i in range(20)], "h": vectors})
    library.write_table(table, tmp_path / "a.parquet", row_group_size=7)
    words = [sys.executable, "-c", textwrap.dedent(DAMAGED), str(tmp_path / "a.parquet")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[-1]) > 60
