"""Texts of the embedded population: what its users preferred."""

from murmuration.preference.data.loading import load_data
from murmuration.sims.population.population import Population
from murmuration.sims.population.texts import texts


def test_texts_are_what_was_preferred():
    population = Population(users=5, test_users=3)
    rows, judged = list(texts(population, "train")), list(population.rows("train"))
    assert [row["user_id"] for row in rows] == [row["user_id"] for row in judged]
    assert [row["text"] for row in rows] == [row["chosen"] for row in judged]
    assert set(rows[0]) == {"user_id", "text"}


def test_other_users_to_test_on():
    data = load_data("text", "murmuration.population:texts_test")
    assert len(data.user_ids) == Population().test_users
    assert all(user.startswith("test-") for user in data.user_ids)
