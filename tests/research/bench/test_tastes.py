from murmuration.research.bench.tastes import measure


def test_a_row_for_one_reward_and_each_basis():
    rows = measure(9, repetitions=1, tastes=(2, 4), users=20)
    assert [row["tastes"] for row in rows] == [1, 2, 4]
    assert rows[0]["share_of_one"] == 1.0
    for row in rows:
        assert row["users_per_second"] > 0.0
        ratio = row["users_per_second"] / rows[0]["users_per_second"]
        assert row["share_of_one"] == ratio
