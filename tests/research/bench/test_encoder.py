"""An encoder's speed is measured on the same texts in three ways, and leaves nothing behind."""

import os

import pytest

from murmuration.preference.language.row_cache import FOLDER
from murmuration.research.bench.encoder import measure_encoder


@pytest.mark.parametrize("named", [None, "mine"])
def test_a_row(language_model, tmp_path, monkeypatch, named):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv(FOLDER, raising=False)
    if named:
        monkeypatch.setenv(FOLDER, str(tmp_path / named))
    row = measure_encoder(language_model("bert"), 10, 300, 1)
    assert (row["words"], row["texts"], row["same_bits"]) == (10, 300, "yes")
    assert row["ratio"] == pytest.approx(row["texts_per_second"] / row["alone_texts_per_second"])
    assert row["kept_texts_per_second"] > 0
    assert os.environ.get(FOLDER) == (str(tmp_path / named) if named else None)
    assert not [*tmp_path.iterdir()]
