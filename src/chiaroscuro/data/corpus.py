"""Words in sentences: the symbol is a masked word, the context the sentence around it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.artifacts.bounded import read_unzipped
from chiaroscuro.data.counter import uniforms
from chiaroscuro.data.dataset import Dataset
from chiaroscuro.data.text import read_lines
from chiaroscuro.errors import InputError, need

__all__ = ["MASK", "PADDING", "UNKNOWN", "Corpus", "Synonyms", "read_corpus", "read_synonyms"]

PADDING, UNKNOWN, MASK = 0, 1, 2
"""Tokens that are no word; the most frequent word is token 3."""
_WORD = re.compile(rb"[a-z]+(?:'[a-z]+)?")


@dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """Tokenised sentences and their vocabulary.

    Args:
        words: of the tokens, by falling frequency; the first three are no words.
        tokens: tokens of all sentences, one after another.
        starts: where each sentence begins, and after them where the last one ends.

    References:
        semantic2025

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "two.txt"
        >>> _ = path.write_text("The cat saw the dog.\\nThe dog ran.\\n")
        >>> corpus = read_corpus(path, vocabulary=3, least=1)
        >>> corpus
        Corpus(2 sentences, 8 words, 3 of them known)
        >>> corpus.words[3:], corpus.tokens.tolist()
        (('the', 'dog', 'cat'), [3, 5, 1, 3, 4, 3, 4, 1])
    """

    words: tuple[str, ...]
    tokens: NDArray[np.int32]
    starts: NDArray[np.int64]

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """How often each token occurs."""
        return np.bincount(self.tokens, minlength=len(self.words))

    def token(self, word: str) -> int:
        """Return the token of a word."""
        number = self.index.get(word)
        if number is None:
            raise InputError(
                f"`{word}` is not among the {len(self.words) - 3} words of the corpus."
            )
        return number

    @cached_property
    def index(self) -> dict[str, int]:
        """Tokens by word."""
        return {word: i for i, word in enumerate(self.words) if i > MASK}

    def __repr__(self) -> str:
        known = len(self.words) - 3
        sizes = f"{len(self.starts) - 1} sentences, {len(self.tokens)} words"
        return f"Corpus({sizes}, {known} of them known)"

    def with_synonyms(self, words: Sequence[str], seed: int = 0) -> Corpus:
        """Split each of these words into two perfect synonyms, `word_1` and `word_2`.

        Every occurrence becomes one or the other by the toss of a coin [semantic2025, App. A.11],
        so that both have the same law of contexts. Each is half as frequent as the word was. The
        first takes the word's token; the second gets a new one, at the end.

        Example:
            >>> corpus = Corpus(("", "", "", "a", "b"), np.array([3, 4, 3, 3]), np.array([0, 4]))
            >>> corpus.with_synonyms(["a"]).words[3:]
            ('a_1', 'b', 'a_2')
        """
        need(
            len(set(words)) == len(words),
            lambda: (
                f"`with_synonyms(words)` needs each word once; {len(words)} were given, "
                f"{len(set(words))} different."
            ),
        )
        named = list(self.words)
        coin = uniforms(1, seed, np.arange(len(self.tokens)))[:, 0] < 0.5
        split = {self.token(word): len(self.words) + i for i, word in enumerate(words)}
        second = np.arange(len(self.words), dtype=np.int32)
        for old, new in split.items():
            second[old] = new
            named[old] = f"{self.words[old]}_1"
            named.append(f"{self.words[old]}_2")
        tokens = np.where(coin, second[self.tokens], self.tokens).astype(np.int32)
        return replace(self, words=tuple(named), tokens=tokens)

    def draw(
        self, n: int, length: int = 24, power: float = 1.0, seed: int = 0, first: int = 0
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """n masked words and their contexts (n, length), rows `first` and on of a stream.

            p(word) ~ count^power;   context: the words around it in its sentence, itself masked

        Row i is a function of the corpus, the seed and i alone. Words that are unknown are never
        the symbol, nor is one that stands alone; sentences longer than `length` are cut around the
        word, shorter ones padded.

        Args:
            n: draws.
            length: tokens of a context, at most.
            power: 1 draws words as often as they occur; less, rare words more often
                [mikolov2013word2vec, Sec. 2.3 draws less of frequent ones].
            seed: seed of the draws.
            first: the first row.
        """
        need(
            n >= 1 and length >= 2, lambda: f"`draw` needs n >= 1, length >= 2; got {n}, {length}."
        )
        upto = self._weights(power)
        u = uniforms(1, seed, np.arange(first, first + n))[:, 0] * upto[-1]
        at = np.minimum(np.searchsorted(upto, u, side="right"), len(upto) - 1)
        sentence = np.searchsorted(self.starts, at, side="right") - 1
        begin, end = self.starts[sentence], self.starts[sentence + 1]
        begin = np.maximum(begin, np.minimum(at - length // 2, end - length))
        places = begin[:, None] + np.arange(length)
        real = places < end[:, None]
        context = np.where(real, self.tokens[np.minimum(places, len(self.tokens) - 1)], PADDING)
        context[np.arange(n), at - begin] = MASK
        return self.tokens[at].astype(np.int64), context.astype(np.int64)

    def dataset(self, n: int, length: int = 24, power: float = 1.0, seed: int = 0) -> Dataset:
        """Draws as a dataset: `x` (n, 1 + length), the word and then its context.

        `TokenSplit(mask=2, positions=(0,))` makes symbol and context of such rows.
        """
        symbol, context = self.draw(n, length, power, seed)
        return Dataset({"x": np.c_[symbol, context], "symbols": symbol}, name="corpus")

    def _weights(self, power: float) -> NDArray[np.float64]:
        """Weights of all places, added up; kept for the next draw."""
        kept: dict[float, NDArray[np.float64]] = self.__dict__.setdefault("_kept", {})
        if power not in kept:
            counts = np.maximum(self.counts, 1).astype(np.float64)
            each = counts ** (power - 1)
            each[: MASK + 1] = 0.0
            weight = each[self.tokens]
            alone = np.flatnonzero(np.diff(self.starts) == 1)
            weight[self.starts[alone]] = 0.0
            need(bool(weight.any()), "A corpus needs a known word in a sentence of two words.")
            kept[power] = np.cumsum(weight)
        return kept[power]


def read_corpus(
    path: str | Path, vocabulary: int = 20_000, least: int = 5, sentences: int | None = None
) -> Corpus:
    """Return the sentences of a text file, one per line, in lower case and without punctuation.

    A word is a run of letters a to z with at most one apostrophe inside; everything else, letters
    with accents too, parts words. Words that are not in the vocabulary are unknown.

    Args:
        path: a `.txt` in UTF-8 or any other code that has ASCII in it, gzipped or not.
        vocabulary: so many words at most, the most frequent (ties in order of the alphabet).
        least: each at least so often.
        sentences: the first so many lines; None for all.
    """
    need(
        vocabulary >= 1 and (sentences is None or sentences >= 1),
        lambda: (
            "`read_corpus(vocabulary, sentences)` needs at least 1 of each; received "
            f"{vocabulary} and {sentences}."
        ),
    )
    lines = read_unzipped(path).lower().split(b"\n")[:sentences]
    word_lists = [words for words in (_WORD.findall(line) for line in lines) if words]
    need(bool(word_lists), lambda: f"`{path}` has no line with a word on it.")
    counts: Counter[bytes] = Counter()
    for words in word_lists:
        counts.update(words)
    known = sorted((-count, word) for word, count in counts.items() if count >= least)[:vocabulary]
    need(
        bool(known),
        lambda: (
            f"`read_corpus(least={least})` needs a word that occurs so often; of {len(counts)} "
            f"words the most frequent occurs {max(counts.values())} times."
        ),
    )
    index = {word: i + 3 for i, (_, word) in enumerate(known)}
    tokens = np.fromiter(
        (index.get(word, UNKNOWN) for words in word_lists for word in words),
        dtype=np.int32,
        count=sum(counts.values()),
    )
    starts = np.r_[0, np.cumsum([len(words) for words in word_lists])].astype(np.int64)
    named = ("<padding>", "<unknown>", "<mask>", *(word.decode() for _, word in known))
    return Corpus(named, tokens, starts)


@dataclass(frozen=True)
class Synonyms:
    """Two words of one sense: `part` of speech (n, v, a, r) and the sense's `ranks` for each."""

    first: str
    second: str
    part: str
    ranks: tuple[int, int]


def read_synonyms(path: str | Path) -> list[Synonyms]:
    """Read pairs of synonyms: a table with columns word1, word2, pos, sense_rank1, sense_rank2.

    Args:
        path: a `.tsv`, gzipped or not; the first line names the columns, further ones are ignored.
    """
    rows = read_lines(Path(path))
    names = _text(path, *next(rows, (1, b""))).strip("\r\n\ufeff ").split("\t")
    wanted = ("word1", "word2", "pos", "sense_rank1", "sense_rank2")
    absent = [name for name in wanted if name not in names]
    need(
        not absent,
        lambda: f"`{path}` needs columns {', '.join(wanted)}; it lacks {', '.join(absent)}.",
    )
    at = [names.index(name) for name in wanted]
    pairs = []
    for number, line in rows:
        cells = _text(path, number, line).rstrip("\r\n").split("\t")
        if len(cells) != len(names):
            raise InputError(
                f"`{path}` needs {len(names)} cells a line; line {number} has {len(cells)}."
            )
        first, second, part, one, two = (cells[i] for i in at)
        need(
            all(rank.isdecimal() and len(rank) < 10 for rank in (one, two)),
            lambda one=one, two=two, number=number: (
                f"`{path}` needs whole numbers as ranks; line {number} has `{one[:20]}` and "
                f"`{two[:20]}`."
            ),
        )
        pairs.append(Synonyms(first, second, part, (int(one), int(two))))
    return pairs


def _text(path: str | Path, number: int, line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"`{path}` needs UTF-8; line {number} has the byte 0x{line[error.start]:02x}."
        ) from None
