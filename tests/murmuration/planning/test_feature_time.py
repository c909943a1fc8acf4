"""How long features take, on a few of the texts."""

import pytest

from murmuration.planning.feature_time import FeatureTime, feature_time
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.language.row_cache import FOLDER


@pytest.fixture
def judgements(make_rows):
    return Judgements.from_rows(make_rows([40]))


def test_a_few_are_computed_and_then_found(judgements, language_model, monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER, str(tmp_path / "kept"))
    first = feature_time(language_model("bert"), judgements)
    assert 0 < first.tried <= 16 and first.tried <= first.texts
    assert first.seconds > 0 and f"{first.texts:,} distinct texts" in str(first)
    again = feature_time(language_model("bert"), judgements)
    assert (again.tried, again.seconds, again.texts) == (0, 0.0, first.texts)
    assert "had been computed before" in str(again)


def test_hashing_keeps_nothing(judgements):
    times = [feature_time("hashing", judgements) for _ in range(2)]
    assert all(each.seconds > 0 and each.tried > 0 for each in times)


def test_in_words():
    sentence = str(FeatureTime("smollm2", 788, 16, 120.0))
    assert sentence.startswith("smollm2: about 2 min 0 s for all 788 distinct texts on this ")


def test_features_that_are_not_there(judgements):
    with pytest.raises(InputError, match="no such folder"):
        feature_time("./none", judgements)
