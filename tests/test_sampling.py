"""Weights, caps and temperature: what an epoch holds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xyd.sampling import Mixture


def mixture(cells, weights=(1.0,), caps=(None,), temperature=1.0, seed=1):
    """`cells`: (direction, corpus, pairs)."""
    direction = np.concatenate([np.full(n, d, np.int16) for d, _, n in cells])
    corpus = np.concatenate([np.full(n, c, np.int16) for _, c, n in cells])
    return direction, corpus, Mixture(direction, corpus, weights, caps, temperature, seed)


def test_without_options_an_epoch_is_every_row_once():
    _, _, plain = mixture([(0, 0, 7), (1, 0, 3)])
    assert plain.rows(0) is None
    assert plain.rows(5) is None


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_shares_follow_the_temperature(temperature):
    sizes = np.array([9000, 900, 100])
    direction, _, mix = mixture([(d, 0, int(n)) for d, n in enumerate(sizes)], temperature=temperature)
    rows = mix.rows(0)
    counts = np.bincount(direction if rows is None else direction[rows], minlength=3)
    expected = sizes ** (1 / temperature) / (sizes ** (1 / temperature)).sum()
    assert counts.sum() == pytest.approx(10_000, abs=2)
    assert counts / counts.sum() == pytest.approx(expected, abs=2e-4)


def test_weights_and_caps_count_rows_of_a_corpus():
    _, corpus, mix = mixture([(0, 0, 100), (0, 1, 100), (0, 2, 1000)], weights=(1, 3, 0.5), caps=(None, None, 200))
    assert np.bincount(corpus[mix.rows(0)]).tolist() == [100, 300, 200]


def test_weight_zero_leaves_a_corpus_out():
    _, corpus, mix = mixture([(0, 0, 10), (0, 1, 10)], weights=(1, 0), caps=(None, None))
    assert np.bincount(corpus[mix.rows(3)], minlength=2).tolist() == [10, 0]


def test_a_cap_holds_after_temperature():
    _, corpus, mix = mixture([(0, 0, 10_000), (1, 1, 100)], weights=(1, 1), caps=(None, 150), temperature=100.0)
    assert np.bincount(corpus[mix.rows(0)])[1] == 150


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 40)), min_size=1, max_size=6),
    st.tuples(*[st.floats(0.1, 4)] * 3),
    st.floats(1, 10),
    st.integers(1, 6),
)
def test_passes_are_even(cells, weights, temperature, epochs):
    """After any number of epochs the rows of a cell have been seen equally often, give or take one."""
    direction, corpus, mix = mixture(cells, weights, (None, None, None), temperature)
    seen = np.zeros(len(direction), int)
    for epoch in range(epochs):
        rows = mix.rows(epoch)
        rows = np.arange(len(direction)) if rows is None else rows
        np.add.at(seen, rows, 1)
        again = mix.rows(epoch)
        assert again is None or (again == rows).all()
    for d in range(3):
        for c in range(3):
            own = seen[(direction == d) & (corpus == c)]
            assert len(own) == 0 or own.max() - own.min() <= 1
