from murmuration.reporting.over_users import tenths


def test_ends_and_middle_are_named():
    deciles = [0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.8, 0.9, 0.9, 1.0]
    assert tenths({"deciles": deciles, "errors": [0.02, *9 * [0.0]]}) == (
        "20.0 % ± 2.0 for the tenth of users whom it suits least, 75.0 % in the middle, "
        "100.0 % for the tenth whom it suits best"
    )


def test_of_nothing_nothing_is_said():
    assert tenths(None) == ""
