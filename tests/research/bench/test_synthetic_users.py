"""Crowds of the stated size, through the same door as any other source."""

import numpy as np
import pytest

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.loading import load_data, load_judgements
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


def test_texts_are_as_unequally_many_as_the_papers():
    """Charles et al. (2024), Table 1: 135,818,730 of 342,477 users, median 183, at most 194,200."""
    counts_U, scale = synthetic_users.texts_of_each(342_477), 3_000_000 / 135_818_730
    assert counts_U.sum() == pytest.approx(3_000_000, rel=0.005)
    assert np.median(counts_U) == round(183 * scale)
    assert counts_U.max() == pytest.approx(194_200 * scale, rel=0.01)
    assert counts_U.min() == 1


def read_texts(name):
    return load_data("text", f"murmuration.research.bench.synthetic_users:{name}")


def test_a_seed_says_who_has_how_many_and_which():
    one, same, other = map(read_texts, ("texts_50", "texts_50_seed_0", "texts_50_seed_1"))
    assert [*one.texts] == [*same.texts]
    assert sorted(one.counts_U) == sorted(other.counts_U) == [*synthetic_users.texts_of_each(50)]
    assert one.counts_U.tolist() != other.counts_U.tolist()
    assert not {*one.texts} & {*other.texts}
    words = [len(text.split(" ")) for text in one.texts]
    assert (min(words), max(words)) == (90, 110)
    assert all(word in synthetic_users._line(np.random.default_rng(0))[0] for word in one.texts)
    assert not {*one.user_ids} & {*read_texts("few_texts").user_ids}


def test_a_file_has_the_same(tmp_path):
    synthetic_users.write_rows("texts_20", str(tmp_path / "made.jsonl"))
    found, made = load_data("text", str(tmp_path / "made.jsonl")), read_texts("texts_20")
    assert ([*found.texts], found.user_ids) == ([*made.texts], made.user_ids)
    synthetic_users.write_rows("users_2_each_3", str(tmp_path / "judged.jsonl"))
    assert len(load_judgements(str(tmp_path / "judged.jsonl"))) == 6


@pytest.mark.parametrize(
    "name",
    [
        "users",
        "users_",
        "users_x",
        "crowd_5",
        "users_-3",
        "users_3_each_",
        "texts_",
        "texts_3_seed_",
    ],
)
def test_other_names_are_refused(name):
    with pytest.raises(InputError, match=name):
        load_judgements(f"murmuration.research.bench.synthetic_users:{name}")
