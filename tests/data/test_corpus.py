"""A corpus: words become tokens, synonyms are injected, draws mask a word of a sentence."""

import gzip

import numpy as np
import pytest

from chiaroscuro.data import read_corpus, read_synonyms
from chiaroscuro.data.corpus import MASK, PADDING, UNKNOWN
from chiaroscuro.errors import InputError

TEXT = "The cat's paw, the CAT!\n\n123 ...\nA dog; the dog? The end\nalone\n"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "text.txt.gz"
    path.write_bytes(gzip.compress(TEXT.encode()))
    return path


def test_words_by_falling_frequency(path):
    corpus = read_corpus(path, vocabulary=100, least=1)
    assert corpus.words[3:5] == ("the", "dog")
    assert set(corpus.words[5:]) == {"a", "alone", "cat", "cat's", "end", "paw"}
    assert corpus.words[5:] == tuple(sorted(corpus.words[5:]))
    read = [" ".join(corpus.words[t] for t in corpus.tokens[a:b]) for a, b in
            zip(corpus.starts[:-1], corpus.starts[1:], strict=True)]  # fmt: skip
    assert read == ["the cat's paw the cat", "a dog the dog the end", "alone"]
    assert corpus.counts[corpus.token("the")] == 4
    few = read_corpus(path, vocabulary=100, least=2)
    assert few.words[3:] == ("the", "dog")
    assert (few.tokens == UNKNOWN).sum() == 6
    assert len(read_corpus(path, least=1, sentences=1).starts) == 2
    with pytest.raises(InputError, match="`ghost` is not among the 2 words"):
        few.token("ghost")


def test_synonyms_share_contexts_by_the_toss_of_a_coin(tmp_path):
    path = tmp_path / "long.txt"
    path.write_text("one good day\na good one\n" * 500)
    plain = read_corpus(path, least=1)
    corpus = plain.with_synonyms(["good", "day"], seed=1)
    index = corpus.index
    halves = [corpus.counts[index[f"good_{i}"]] for i in (1, 2)]
    assert sum(halves) == 1000
    assert abs(halves[0] - 500) < 80
    assert "good" not in index
    before = np.where(np.isin(corpus.tokens, [index["good_1"], index["good_2"]]), 0, corpus.tokens)
    at = plain.tokens == plain.token("good")
    assert ((before == 0) == at).all()
    same = plain.with_synonyms(["good", "day"], seed=1)
    np.testing.assert_array_equal(same.tokens, corpus.tokens)
    with pytest.raises(InputError, match="2 were given, 1 different"):
        plain.with_synonyms(["good", "good"])


def test_draws_mask_one_word_of_its_sentence(path):
    corpus = read_corpus(path, least=1)
    words, contexts = corpus.draw(400, length=4, seed=2)
    sentences = [
        corpus.tokens[a:b].tolist()
        for a, b in zip(corpus.starts[:-1], corpus.starts[1:], strict=True)
    ]
    for word, context in zip(words.tolist(), contexts.tolist(), strict=True):
        assert context.count(MASK) == 1
        filled = [word if t == MASK else t for t in context if t != PADDING]
        assert any(filled == s[i : i + len(filled)] for s in sentences for i in range(len(s)))
        assert len(filled) == 4  # both longer sentences have at least so many
    assert corpus.token("alone") not in words
    np.testing.assert_array_equal(corpus.draw(10, 4, seed=2, first=5)[0], words[5:15])


def test_the_law_of_words_follows_the_power(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("a a a a b\n" * 100)
    corpus = read_corpus(path, least=1)
    for power, share in ((1.0, 0.8), (0.5, 2 / 3), (0.0, 0.5)):
        words, _ = corpus.draw(20_000, length=5, power=power)
        assert (words == corpus.token("a")).mean() == pytest.approx(share, abs=0.02)


def test_short_sentences_are_padded(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("a b\n")
    corpus = read_corpus(path, least=1)
    _, contexts = corpus.draw(5, length=4)
    assert (contexts[:, 2:] == PADDING).all()
    data = corpus.dataset(6, length=4)
    assert data.column("x").shape == (6, 5)


def test_pairs_of_synonyms(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("word1\tword2\tpos\tother\tsense_rank1\tsense_rank2\nbig\tlarge\ta\tx\t1\t2\n")
    (one,) = read_synonyms(path)
    assert (one.first, one.second, one.part, one.ranks) == ("big", "large", "a", (1, 2))
    path.write_text("word1\tword2\nbig\tlarge\n")
    with pytest.raises(InputError, match="it lacks pos, sense_rank1, sense_rank2"):
        read_synonyms(path)
    path.write_text("word1\tword2\tpos\tsense_rank1\tsense_rank2\nbig\tlarge\n")
    with pytest.raises(InputError, match="5 cells a line; line 2 has 2"):
        read_synonyms(path)


def test_sentences(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("1 2 3\n")
    with pytest.raises(InputError, match="no line with a word"):
        read_corpus(path)
    path.write_text("a b a\n")
    with pytest.raises(InputError, match="of 2 words the most frequent occurs 2 times"):
        read_corpus(path, least=9)
    with pytest.raises(InputError, match="got 0, 4"):
        read_corpus(path, least=1).draw(0, 4)


def test_other_codes_and_letters_part_words(tmp_path):
    path = tmp_path / "t.txt"
    path.write_bytes("Na\xefve men; caf\xe9 men\r\n".encode("latin1") + b"\xff\xfe men men\n")
    corpus = read_corpus(path, least=1)
    assert set(corpus.words[3:]) == {"na", "ve", "men", "caf"}


def test_what_does_not_fit_is_a_sentence(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("a b a\n")
    with pytest.raises(InputError, match="0 and None"):
        read_corpus(path, vocabulary=0, least=1)
    with pytest.raises(InputError, match="-1"):
        read_corpus(path, least=1, sentences=-1)
    head = b"word1\tword2\tpos\tsense_rank1\tsense_rank2\r\n"
    path.write_bytes(b"\xef\xbb\xbf" + head + b"big\tlarge\ta\t1\t2\r\n")
    assert read_synonyms(path)[0].ranks == (1, 2)
    path.write_bytes(head + b"big\tlarge\ta\tfirst\t2\n")
    with pytest.raises(InputError, match="line 2 has `first` and `2`"):
        read_synonyms(path)
    path.write_bytes(head + b"big\tlarg\xe9\ta\t1\t2\n")
    with pytest.raises(InputError, match="line 2 has the byte 0xe9"):
        read_synonyms(path)
    path.write_bytes(b"")
    with pytest.raises(InputError, match="it lacks word1"):
        read_synonyms(path)
