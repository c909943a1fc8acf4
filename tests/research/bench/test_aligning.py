"""The benchmark of a step of align has both do the same work; how fast is not tested."""

import pytest

from murmuration.research.bench import aligning
from murmuration.research.bench.aligning import AlignBench, measure_step
from murmuration.research.bench.language_model import LmBench

SMALL = LmBench(tokens=64, layers=2, width=16, vocabulary=50)

pytest.importorskip("peft")
pytest.importorskip("trl")


@pytest.mark.parametrize("layers", ["all", "last:1"])
def test_figures(layers, monkeypatch, tmp_path):
    monkeypatch.setattr(aligning.tempfile, "tempdir", str(tmp_path))
    row = measure_step(AlignBench("", layers, 4, 3, SMALL), 1)
    assert (row["layers"], row["answers"], row["max_new_tokens"]) == (layers, 4, 3)
    assert row["plain_s_a_step"] > 0 and row["ours_s_a_step"] > 0
    parts = [row[f"{way}_ms_a_token"] for way in ("ours", "plain")]
    assert row["ratio"] == pytest.approx(parts[0] / parts[1])
    assert not list(tmp_path.glob("murmuration-*"))


def test_both_write_the_same_number_of_answers_to_the_same_reward(monkeypatch):
    clocks = []

    class Seen(aligning._Clock):
        def __init__(self, base):
            super().__init__(base)
            self.sizes = []
            clocks.append(self)

        def reward(self, prompts, responses):
            self.sizes.append(len(responses))
            return super().reward(prompts, responses)

    monkeypatch.setattr(aligning, "_Clock", Seen)
    measure_step(AlignBench("", "last:1", 4, 3, SMALL), 1)
    assert [one.sizes for one in clocks] == [[4, 4]] * 4  # two steps of ours and of plain, twice
