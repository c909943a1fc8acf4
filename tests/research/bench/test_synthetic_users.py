"""Crowds of the stated size, through the same door as any other source."""

import pytest

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.loading import load_judgements
from murmuration.research.bench import synthetic_users


@pytest.mark.parametrize(
    ("name", "users", "each"), [("users_30", 30, 10), ("users_25_each_3", 25, 3), ("few", 40, 4)]
)
def test_a_crowd_has_the_size_its_name_says(name, users, each):
    judgements = load_judgements(f"murmuration.research.bench.synthetic_users:{name}")
    assert len(judgements.user_ids) == users
    assert set(judgements.counts_U.tolist()) == {each}
    assert judgements.decided == users * each


def test_texts_recur_so_that_features_are_cheap():
    chosen = {row["chosen"] for row in synthetic_users.rows(500, 10)}
    assert len(chosen) <= 500


@pytest.mark.parametrize(
    "name", ["users", "users_", "users_x", "crowd_5", "users_-3", "users_3_each_"]
)
def test_other_names_are_refused(name):
    with pytest.raises(InputError, match=name):
        load_judgements(f"murmuration.research.bench.synthetic_users:{name}")
