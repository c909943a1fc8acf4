"""Crowds of the stated size, through the same door as any other source."""

import pytest

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.loading import load_judgements


@pytest.mark.parametrize(
    ("name", "users", "each"), [("users_30", 30, 10), ("each_3", 2500, 3), ("few", 40, 4)]
)
def test_a_crowd_has_the_size_its_name_says(name, users, each):
    judgements = load_judgements(f"murmuration.research.bench.synthetic_users:{name}")
    assert len(judgements.user_ids) == users
    assert set(judgements.counts_U.tolist()) == {each}
    assert judgements.decided == users * each


@pytest.mark.parametrize("name", ["users", "users_", "users_x", "crowd_5", "users_-3"])
def test_other_names_are_refused(name):
    with pytest.raises(InputError, match=name):
        load_judgements(f"murmuration.research.bench.synthetic_users:{name}")
