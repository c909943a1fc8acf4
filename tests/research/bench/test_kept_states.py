"""The benchmark of kept states computes the same gradients; how fast is not tested."""

import os
from dataclasses import replace

import pytest
import torch

from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.examples.judgements import TokenExamples
from murmuration.preference.language.row_cache import FOLDER
from murmuration.privacy.mechanisms.clipping import NoClip
from murmuration.research.bench import kept_states, rivals
from murmuration.research.bench.language_model import LmBench, Variants, examples, saved_model

SMALL = LmBench(users=3, judgements=1, tokens=8, layers=2, width=16, vocabulary=50, rank=2)

pytest.importorskip("peft")


@pytest.mark.parametrize("task", ["reward", "policy"])
@pytest.mark.parametrize("layers", ["all", "last:1"])
def test_figures(task, layers, monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER, str(tmp_path / "mine"))
    row = kept_states.measure(SMALL, layers, task, 1)
    names = ("plain_ms_a_judgement", "ours_ms_a_judgement", "ours_ratio", "states_ms_a_text")
    assert all(row[name] > 0 for name in (*names, "shared_ms_a_judgement", "shared_ratio"))
    assert (row["layers"], row["judgements"]) == (layers, 3)
    assert os.environ[FOLDER] == str(tmp_path / "mine") and not (tmp_path / "mine").exists()


def test_of_rivals_too(tmp_path):
    pytest.importorskip("trl")
    row = kept_states.measure(SMALL, "last:1", "policy", 1, rivals=True)
    assert row["trl_ratio"] > 0 and row["trl_ms_a_judgement"] > 0


def test_a_base_is_named(tmp_path):
    with saved_model(SMALL) as path:
        row = kept_states.measure(replace(SMALL, vocabulary=0), "last:1", "reward", 1, path)
    assert row["dimension"] > 0


@pytest.mark.parametrize("task", ["reward", "policy"])
def test_people_who_judged_the_same_texts(task, language_model, write_rows, monkeypatch):
    path = write_rows(
        [
            {"user_id": f"u{user}", "prompt": "what now ?", "chosen": text, "rejected": "loan"}
            for user in range(3)
            for text in [f"save {'it ' * many}" for many in range(1, 20)]
        ]
    )
    monkeypatch.setattr(kept_states, "_MOST", 40)
    row = kept_states.measure_people(path, "last:1", task, 1, str(language_model("llama")))
    assert row["judgements"] == 40 and row["texts"] == 17  # 16 of a user, and one against them all
    ways = ("plain", "ours", "once")
    assert all(row[f"{way}_ms_a_judgement"] > 0 for way in ways)
    assert row["once_ratio"] > 0 and row["ours_ratio"] > 0 and row["shared_ratio"] > 0
    assert 0 <= row["isolated_padding"] < 1 and 0 <= row["shared_padding"] < 1
    assert "trl_ratio" not in row


@pytest.mark.parametrize("task", ["reward", "policy"])
def test_trl_has_the_same_pairs_of_people(task, language_model, write_rows, monkeypatch):
    """Each with its own prompt, whatever its length."""
    pytest.importorskip("trl")
    rows = [
        {"user_id": f"u{user}", "prompt": "what now ? " * (1 + user), "chosen": "save it",
         "rejected": "loan " * 5}
        for user in range(3)
    ]  # fmt: skip
    path, base, pairs = write_rows(rows), str(language_model("llama")), []

    class Watched(rivals.Trl):
        def seconds(self):
            pairs.append(list(self._trainer.train_dataset))
            return super().seconds()

    monkeypatch.setattr(kept_states, "Trl", Watched)
    row = kept_states.measure_people(path, "last:1", task, 1, base, rivals=True)
    assert row["trl_ratio"] > 0 and row["trl_ms_a_judgement"] > 0
    texts = LanguageBase(BaseSettings(base, task=task)).texts
    for name in ("chosen", "rejected"):
        made = texts([r["prompt"] for r in rows], [r[name] for r in rows], ended=task == "policy")
        for at, pair in enumerate(pairs[0]):
            whole = made.ids[made.start_T[at] : made.start_T[at + 1]].tolist()
            prompt = pair.get("prompt_ids", [])
            assert prompt + pair[f"{name}_ids"] == whole
            assert len(prompt) == (made.second_T[at] if task == "policy" else 0)


def test_users_share_batches_where_that_is_measured(tmp_path, monkeypatch):
    shared, plainly = [], TokenExamples.sum_over_users

    def watched(*args, shared_passes=False, **more):
        shared.append(shared_passes)
        return plainly(*args, shared_passes=shared_passes, **more)

    monkeypatch.setattr(TokenExamples, "sum_over_users", watched)
    kept_states.measure(SMALL, "last:1", "reward", 1)
    assert shared == [False, True] * 2  # one of which warms up


def test_all_ways_have_the_same_sum(tmp_path):
    with saved_model(SMALL) as path, kept_states._own_cache():
        base = LanguageBase(BaseSettings(path, rank=2, max_tokens=8, layers="last:1"))
        given = examples(SMALL, base)
        ways = Variants(given)
        ways._clip = NoClip()
        ours, shared = ways.kept(), ways.kept(shared_passes=True)
        base.lower = None
        plain_D = base.to_theta(Variants(given).plain()[None])[0]
    for sum_D in (ours, shared):
        torch.testing.assert_close(sum_D, plain_D, atol=1e-6, rtol=1e-4)
