"""Vectors of words and their clusters: against dense computations, and the same on all cores."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from jaxseq.representations import cluster_directions, learn_representation, positive_information


def animals(count: int = 60, seed: int = 0) -> list[list[str]]:
    """Sentences of an article, a noun and a verb."""
    random = np.random.default_rng(seed)
    kinds = (["the", "a", "my"], ["dog", "cat", "cow", "hen"], ["barks", "sleeps", "eats"])
    return [[str(random.choice(kind)) for kind in kinds] for _ in range(count)]


@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(1, 9), st.sampled_from([0.75, 1.0]))
def test_information_is_that_of_a_dense_computation(seed, rows, columns, smoothing):
    random = np.random.default_rng(seed)
    counts = random.poisson(0.7, (rows, columns)).astype(float)
    words = int(random.integers(1, rows + 1))
    ours = positive_information(sp.csr_matrix(counts), words, smoothing).toarray()
    by_column = counts[:words].sum(0)
    if not by_column.any():
        by_column = counts.sum(0)
    for row in range(rows):
        for column in range(columns):
            expected = 0.0
            if counts[row, column] and by_column[column]:
                share = (
                    by_column[column] ** smoothing / (by_column[by_column > 0] ** smoothing).sum()
                )
                expected = max(0.0, np.log(counts[row, column] / counts[row].sum() / share))
            assert ours[row, column] == pytest.approx(expected, abs=1e-12)


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 5))
def test_each_vector_is_in_the_cluster_of_the_nearest_centre(seed, clusters, dimensions):
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(40, dimensions)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[3] = vectors[4]
    weights = random.random(40) + 0.1
    assigned, centres = cluster_directions(vectors, clusters, seed=seed, weights=weights)
    near = vectors @ centres.T
    assert near[np.arange(40), assigned] == pytest.approx(near.max(1), abs=1e-6)
    assert assigned[3] == assigned[4]
    sizes = np.bincount(assigned, minlength=len(centres))
    assert len(centres) <= clusters
    assert (np.diff(sizes) <= 0).all()


def test_no_more_clusters_than_different_vectors():
    vectors = np.eye(3, dtype=np.float32)[[0, 1, 1, 2, 2, 2]]
    assigned, centres = cluster_directions(vectors, 10, seed=1, weights=np.ones(6))
    assert len(centres) == 3
    assert len(set(zip(assigned.tolist(), vectors.argmax(1).tolist()))) == 3
    nothing = np.zeros((2, 3), np.float32)
    assert cluster_directions(nothing, 2, seed=1, weights=np.ones(2))[0].tolist() == [0, 0]


def test_words_with_the_same_neighbours_share_a_cluster():
    learnt = learn_representation(animals(), sizes=(3,))
    kinds = [{learnt.cluster(word, 3) for word in group} for group in (
        ["the", "a", "my"], ["dog", "cat", "cow", "hen"], ["barks", "sleeps", "eats"],
    )]  # fmt: skip
    assert all(len(kind) == 1 for kind in kinds)
    assert len(set.union(*kinds)) == 3


@pytest.mark.parametrize("kinds", [("clusters",), ("brown",), ("states",)])
def test_the_same_on_any_number_of_cores_and_with_the_same_seed(kinds):
    options = {"kinds": kinds, "sizes": (3, 5), "brown_classes": 4, "num_states": 3,
               "state_iterations": 2, "seed": 7}  # fmt: skip
    digests = []
    for cores in (1, 2):
        with threadpool_limits(cores):
            digests.append(learn_representation(animals(), **options).digest)
    assert digests[0] == digests[1]


def test_another_seed_gives_other_vectors():
    one, other = (
        learn_representation(animals(200), sizes=(7,), dimensions=2, seed=seed).clusters[7].tolist()
        for seed in (0, 1)
    )
    assert one != other
