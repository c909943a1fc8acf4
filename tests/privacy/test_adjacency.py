import math

import pytest

from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.clipping import NoClip, UserClip


def test_names_are_the_ones_that_users_type():
    assert {a.value for a in Adjacency} == {"add-remove", "zero-out", "replace", "replace-labels"}
    assert Adjacency("zero-out") is Adjacency.ZERO_OUT
    with pytest.raises(ValueError, match="substitute"):
        Adjacency("substitute")


@pytest.mark.parametrize(
    ("adjacency", "vectors"),
    [
        (Adjacency.ADD_REMOVE, 1),
        (Adjacency.ZERO_OUT, 1),
        (Adjacency.REPLACE, 2),
        (Adjacency.REPLACE_LABELS, 2),
    ],
)
def test_sensitivity_follows_from_the_name(adjacency, vectors):
    assert adjacency.vectors_changed == vectors
    assert UserClip(0.5).sensitivity(adjacency) == 0.5 * vectors
    assert NoClip().sensitivity(adjacency) == math.inf


def test_counts_are_public_only_where_the_relation_says_so():
    assert [a for a in Adjacency if a.counts_are_public] == [Adjacency.REPLACE_LABELS]


def test_every_relation_has_its_own_sentence():
    sentences = {a.sentence() for a in Adjacency}
    assert len(sentences) == len(Adjacency)
    assert all(s.endswith(".") and "eighbouring data sets" in s for s in sentences)
