"""Tasks given as tables: their laws, their draws and what can be made of them."""

import numpy as np
import pytest

from chiaroscuro.data import SymbolTask, contrastive_mod_add, mod_add
from chiaroscuro.diagnostics import distributional_alignment, equivalence, tabulate
from chiaroscuro.errors import InputError

LAW = np.arange(1.0, 25).reshape(4, 3, 2)


def test_laws_are_sums_of_the_table():
    task = SymbolTask(LAW)
    assert task.law.sum() == pytest.approx(1)
    np.testing.assert_allclose(task.pairs(), LAW.sum(2) / LAW.sum())
    for s in range(3):
        expected = [LAW[c, s].sum() / LAW[:, s].sum() for c in range(4)]
        np.testing.assert_allclose(task.given_symbol()[s], expected)
    assert task.by_symbol().shape == (3, 4, 2)
    assert (task.n_contexts, task.n_symbols, task.n_labels) == (4, 3, 2)
    assert repr(task) == "SymbolTask('symbol_task', 4 contexts, 3 symbols, 2 labels)"


def test_draws_follow_the_law_and_are_a_function_of_seed_and_row():
    task = SymbolTask(LAW)
    s, c, y = task.sample(60_000, seed=3)
    found = tabulate(s, c, y) / 60_000
    sd = np.sqrt(task.by_symbol() / 60_000)
    assert (np.abs(found - task.by_symbol()) < 5 * sd).all()
    np.testing.assert_array_equal(task.sample(10, seed=3)[0], s[:10])
    assert (task.sample(60_000, seed=4)[0] != s).any()


@pytest.mark.parametrize(("odd", "n"), [(-0.1, 1), (np.nan, 1), (np.inf, 1)])
def test_what_is_no_probability_is_counted(odd, n):
    law = np.ones((2, 3))
    law[1, 1] = odd
    with pytest.raises(InputError, match=f"{n} of them negative or not finite"):
        SymbolTask(law)


def test_what_never_happens_is_never_drawn():
    law = np.zeros((5, 2))
    law[1, 0] = law[3, 1] = 1
    s, c = SymbolTask(law).sample(1000)
    assert set(zip(s.tolist(), c.tolist(), strict=True)) == {(0, 1), (1, 3)}


def test_labels_shown_are_part_of_the_context():
    task = SymbolTask(LAW, [[5, 1], [5, 2], [6, 1], [6, 2]])
    shown = task.with_labels_shown()
    assert shown.n_labels == 0
    assert shown.contexts[:3].tolist() == [[5, 1, 7], [5, 1, 8], [5, 2, 7]]
    for c in range(4):
        for y in range(2):
            np.testing.assert_allclose(shown.law[2 * c + y], LAW[c, :, y] / LAW.sum())
    with pytest.raises(InputError, match="no labels"):
        shown.with_labels_shown()


def test_where_and_renamed():
    kept = np.ones((4, 3), bool)
    kept[0, 1] = False
    task = SymbolTask(LAW).where(kept)
    assert task.law[0, 1].sum() == 0
    assert task.law[1, 1, 0] == pytest.approx(LAW[1, 1, 0] / (LAW.sum() - LAW[0, 1].sum()))
    other = SymbolTask(LAW).renamed([2, 0, 1])
    np.testing.assert_allclose(other.law[:, 0], SymbolTask(LAW).law[:, 2])


def test_data_sets_hold_symbol_and_context():
    task = contrastive_mod_add(n=4, k=2)
    data = task.dataset()
    x = data.column("x")
    assert len(x) == 2 * 4 * 4  # either addend masked, every sum
    assert x.shape[1] == 4
    for symbol, a, b, c in x.tolist():
        addends = [symbol if t == 4 else t for t in (a, b)]
        assert sum(addends) % 2 == c
    drawn = mod_add().dataset(50, seed=1, test=0.2)
    assert set(drawn.columns) == {"x", "symbols", "contexts", "labels", "split"}
    assert ((drawn.column("x").sum(1) - drawn.labels) % 8 == 0).all()


def test_the_tasks_of_the_paper_are_aligned():
    classes = equivalence(mod_add(12, 4).by_symbol(), exact=True).classes
    assert classes.tolist() == [s % 4 for s in range(12)]
    for masked in ("first", "second", "either"):
        law = contrastive_mod_add(12, 4, masked).given_symbol()
        found = distributional_alignment(law, classes, exact=True)
        assert (found.split, found.merged, found.score) == (0, 0, 1)
    apart = contrastive_mod_add(12, 4, misalignment=0.9).given_symbol()
    assert distributional_alignment(apart, classes, exact=True).split == 1


def test_misalignment_is_as_the_paper_has_it():
    law = contrastive_mod_add(misalignment=0.9, seed=5).given_symbol()
    np.testing.assert_allclose(law.sum(1), 1)
    top = np.sort(law, axis=1)[:, ::-1]
    np.testing.assert_allclose(top[:, 0], 0.9)
    np.testing.assert_allclose(top[:, 1:32], 0.1 / 31)
    assert (top[:, 32:] == 0).all()
    plain = contrastive_mod_add(misalignment=1 / 32)
    np.testing.assert_allclose(plain.law, contrastive_mod_add().law)
    with pytest.raises(InputError, match="from 1/32"):
        contrastive_mod_add(misalignment=0.01)


def test_noise_mixes_with_results_at_random():
    whole = contrastive_mod_add(noise=1.0).given_symbol()
    np.testing.assert_allclose(whole, whole[0] * np.ones((16, 1)))
    half = contrastive_mod_add(noise=0.5).law
    np.testing.assert_allclose(half, (contrastive_mod_add().law + whole.T / 16) / 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SymbolTask(np.ones(3)), r"received shape \(3,\)"),
        (lambda: SymbolTask([[1.0, -1.0]]), "at least 0"),
        (lambda: SymbolTask([[1, 0], [1, 0]]), "1 of 2 do not, the first is 1"),
        (lambda: SymbolTask(np.ones((3, 2)), [[1], [2]]), r"\(3, length\)"),
        (lambda: SymbolTask(np.ones((3, 2))).where(np.ones(3)), r"\(3, 2\)"),
        (lambda: SymbolTask(np.ones((3, 2))).renamed([0, 0]), "0 to 1 once"),
        (lambda: SymbolTask(np.ones((3, 2))).sample(0), "received 0"),
        (lambda: mod_add(4, 5), "n = 4 and k = 5"),
        (lambda: contrastive_mod_add(masked="third"), "received `third`"),
        (lambda: contrastive_mod_add(noise=2), "received 2"),
    ],
)
def test_sentences(make, message):
    with pytest.raises(InputError, match=message):
        make()
