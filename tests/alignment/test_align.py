"""From a reward to a policy: what is kept, what ends a run early, and going on after a kill."""

import json
import math
import os
import shutil
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from damage import no_file_above
from language_models import save_gpt2

from murmuration.alignment import align as module
from murmuration.alignment.align import Alignment
from murmuration.alignment.reinforce import Steps
from murmuration.alignment.rewards import Guards
from murmuration.alignment.supervised import Supervised
from murmuration.preference.base_names import place_of
from murmuration.preference.data.errors import InputError
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.language.generation import PublicSeed, Sampling, Writer
from murmuration.preference.language.likelihood import SavedLikelihood, load_scorer
from murmuration.preference.reward import RewardModel
from murmuration.privacy.promise import Promise
from murmuration.server.record import run_folder

pytest.importorskip("peft")
pytest.importorskip("trl")

NAMES = ["what now", "loan", "save it", "buy today", "spend all of it", "keep the old one"]
PROMPTS = [f"{name} {more}" for name in NAMES for more in ("?", "!", "now ?", "wait ?")]


SHORT = Sampling(max_new_tokens=5)


def steps(count, rate=0.02, beta=0.0):
    return Steps(steps=count, batch=8, answers=4, rate=rate, beta=beta)


PUBLIC = Promise().declared_public()


def align(asked, prompts, out, said=lambda text: None, **more):
    """The alignment with a reward that was declared public; ``said`` hears what is being done."""
    return module.align(asked, prompts, out, PUBLIC, on_status=said, **more)


def save_reward(folder):
    """Likes one word above all."""
    features = HashingFeatures(dimension=257, length_weight=0.0)
    theta = 3.0 * features(["a"], ["save"])[0] - 3.0 * features(["a"], ["loan"])[0]
    RewardModel(theta, features).save(folder)
    return folder


@pytest.fixture(autouse=True)
def no_report(monkeypatch):
    """Of runs in tests; those of a module's fixtures, which come before, write theirs."""
    monkeypatch.setattr(module, "write_report", lambda *_: None)


@pytest.fixture
def reward(tmp_path):
    return save_reward(tmp_path / "run" / "model")


@pytest.fixture
def asked(reward, language_model):
    return lambda **more: alignment(reward, language_model("llama", layers=1), **more)


def alignment(reward, base, **more):
    given = {
        "reward": str(reward),
        "base": str(base),
        "prompts": "file",
        "steps": steps(4),
        "sampling": SHORT,
        "lora_rank": 4,
        "lora_targets": "all-linear",
        "evaluate_every": 2,
        "evaluate_on": 8,
    }
    return Alignment(**{**given, **more})


@pytest.fixture(scope="module")
def finished(tmp_path_factory, language_model):
    """What was asked for, the folder and the result of a run that nothing interrupted; all is to
    stay as it is."""
    folder = tmp_path_factory.mktemp("finished")
    wanted = alignment(save_reward(folder / "run" / "model"), language_model("llama", layers=1))
    return wanted, folder / "out", align(wanted, PROMPTS, folder / "out")


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory, finished):
    """The folder of such a run that was killed at step 4; to be copied."""

    out = tmp_path_factory.mktemp("interrupted") / "out"
    with pytest.raises(KeyboardInterrupt):
        align(finished[0], PROMPTS, out, said=killed_at("step 4: reward"))
    return out


def killed_at(words):
    """A function to be told what is done: ends it where it begins with that."""

    def said(text):
        if text.startswith(words):
            raise KeyboardInterrupt

    return said


def metrics(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_a_policy_that_others_load_and_what_is_told_of_it(finished):
    _, out, result = finished
    names = sorted(path.name for path in out.iterdir())
    assert names == ["answers", "base.json", "config.json", "metrics.jsonl", "model", "plots",
                     "private", "reference.jsonl", "report.html", "result.json"]  # fmt: skip
    assert json.loads((out / "result.json").read_text()) == result
    assert [line["step"] for line in metrics(out)] == [0, 2, 4]
    assert (result["stopped"], result["saved_step"]) == ("", 4)
    assert result["policy"] == metrics(out)[-1]
    assert result["policy"]["kl"] > 0 == result["reference"]["kl"]
    assert "Saved after 4 of 4 steps" in (out / "model" / "README.md").read_text()
    # The folder writes what was evaluated last, as that was drawn.
    rows = [json.loads(row) for row in (out / "answers/step-000004.jsonl").read_text().splitlines()]
    written = Writer.load(out / "model").write([row["prompt"] for row in rows], SHORT, (0, 5))
    assert written == [row["response"] for row in rows]
    assert np.isfinite(load_scorer(out / "model").score(["loan ?"], ["save it"])).all()


def test_the_policy_finds_its_base_where_no_way_leads_there(finished):
    """As from /tmp to a home: a model has the base's last name alone then."""
    wanted, out, _ = finished
    assert place_of("./of-another-name", out / "model") == os.path.realpath(wanted.base)


def test_where_nobody_says_the_last_eight_layers_are_changed(reward, language_model, tmp_path):
    save_gpt2(tmp_path / "g", n_layer=9)
    for base, more, expected in (
        (tmp_path / "g", {}, "last:8"),
        (tmp_path / "g", {"lora_layers": "last:1"}, "last:1"),
        (language_model("llama", layers=1), {}, "all"),  # where there are no more
    ):
        loaded = module._base(alignment(reward, base, **more), str(base), "policy")
        assert loaded.settings.layers == expected


def test_held_out_prompts_are_not_trained_on(asked, tmp_path, monkeypatch):
    seen = []
    honest = module.train_policy

    def train_policy(base, prompts, *rest, **named):
        seen.extend(prompts)
        honest(base, prompts, *rest, **named)

    monkeypatch.setattr(module, "train_policy", train_policy)
    of_all = Steps(steps=16, batch=8, answers=4, rate=0.02, beta=0.0)
    align(asked(steps=of_all), [*PROMPTS, *PROMPTS], tmp_path / "out")
    rows = (tmp_path / "out/answers/step-000000.jsonl").read_text().splitlines()
    held = [json.loads(row)["prompt"] for row in rows]
    assert sorted([*held, *seen]) == sorted(PROMPTS)
    assert len(held) == 8


def test_the_proxy_is_what_score_says_over_the_reference(finished):
    wanted, out, _ = finished
    model = RewardModel.load(wanted.reward)

    def mean(step):
        text = (out / f"answers/step-{step:06d}.jsonl").read_text()
        rows = [json.loads(row) for row in text.splitlines()]
        return model.score([r["prompt"] for r in rows], [r["response"] for r in rows]).mean()

    for line in metrics(out):
        assert line["proxy"] == pytest.approx(mean(line["step"]) - mean(0))


def test_it_ends_where_the_divergence_passes_its_budget_and_keeps_what_is_within(
    reward, language_model, tmp_path
):
    slow = partial(alignment, reward, language_model("llama"), steps=steps(6, rate=0.004))
    free = align(slow(), PROMPTS, tmp_path / "free")
    kls = [line["kl"] for line in metrics(tmp_path / "free")]
    assert kls[1] < kls[2]  # or choose another seed
    out = tmp_path / "out"
    result = align(slow(kl_budget=(kls[1] + kls[2]) / 2), PROMPTS, out)
    assert (free["stopped"], result["stopped"]) == ("", "kl")
    assert [line["step"] for line in metrics(out)] == [0, 2, 4]
    assert result["saved_step"] == 2
    assert result["policy"]["kl"] == pytest.approx(kls[1])


def test_a_run_that_learnt_nothing_says_so_however_often_it_is_asked(asked, tmp_path):
    out = tmp_path / "out"
    for resume in (False, True):
        with pytest.raises(InputError, match=r"nothing was learnt: the divergence .* at step 2"):
            align(asked(kl_budget=1e-4), PROMPTS, out, resume=resume)
        assert [line["step"] for line in metrics(out)] == [0, 2]
        assert not (out / "model").exists()
        assert not (out / "result.json").exists()


class Falling:
    """A truth that is best at the first evaluation after the beginning, and then falls."""

    worst = -9.0

    def __init__(self):
        self.calls = 0

    def __call__(self, prompts, responses):
        values = [0.0, 1.0, 0.0, -1.0, -2.0, -3.0, -4.0]
        self.calls += 1
        return values[self.calls - 1] + np.linspace(0, 0.01, len(prompts))


def proxies(monkeypatch, by_step):
    """The truth falls, and the reward is what a function of the step says."""
    monkeypatch.setattr(module, "truth_of", lambda named: Falling())
    honest = module.Evaluator.remember

    def remember(self, step, answers):
        return by_step(step), honest(self, step, answers)[1]

    monkeypatch.setattr(module.Evaluator, "remember", remember)


def test_it_ends_where_reward_and_truth_part_and_keeps_the_truly_best(asked, tmp_path, monkeypatch):
    proxies(monkeypatch, float)
    out = tmp_path / "out"
    long = steps(6, beta=0.15)
    result = align(asked(truth="population", steps=long, evaluate_every=1), PROMPTS, out)
    assert result["stopped"] == "parted"
    assert [line["step"] for line in metrics(out)] == [0, 1, 2, 3]
    assert result["saved_step"] == 1
    assert result["policy"]["truth"] == pytest.approx(1.0, abs=0.01)


def test_truth_and_reward_that_fall_together_have_not_parted(asked, tmp_path, monkeypatch):
    proxies(monkeypatch, lambda step: -float(step))
    result = align(asked(truth="population", evaluate_every=1), PROMPTS, tmp_path / "out")
    assert result["stopped"] == ""
    assert len(metrics(tmp_path / "out")) > 4  # where they part, it ends before


@pytest.mark.parametrize("when", ["the reference", "step 4"])
def test_killed_and_continued_it_is_the_policy_of_a_run_that_was_not(finished, tmp_path, when):
    wanted, folder, whole = finished

    with pytest.raises(KeyboardInterrupt):
        align(wanted, PROMPTS, tmp_path / "parts", said=killed_at(when))
    assert not (tmp_path / "parts" / "model").exists()
    parts = align(wanted, PROMPTS, tmp_path / "parts", resume=True)
    for name in ("stopped", "saved_step", "prompts_trained", "dimension", "clipped", "too_long"):
        assert parts[name] == whole[name]
    assert [parts["slope"], *parts["range"]] == pytest.approx([whole["slope"], *whole["range"]])
    assert parts["seconds"] > 0
    for part in ("policy", "reference"):
        assert parts[part]["truth"] is whole[part]["truth"] is None
        for name in ("step", "proxy", "kl", "kl_error", "words"):
            assert parts[part][name] == pytest.approx(whole[part][name], rel=1e-4, abs=1e-5), name
    one, other = (Writer.load(place / "model") for place in (folder, tmp_path / "parts"))
    assert one.write(PROMPTS, SHORT, 5) == other.write(PROMPTS, SHORT, 5)
    again = align(wanted, PROMPTS, tmp_path / "parts", resume=True)  # finished: told once more
    assert again == parts


def test_what_is_refused(asked, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "a").touch()
    with pytest.raises(InputError, match="is not empty"):
        align(asked(), PROMPTS, tmp_path / "there")
    with pytest.raises(InputError, match="24 different prompts; --evaluate-on 23"):
        align(asked(evaluate_on=23), PROMPTS, tmp_path / "few")
    assert not (tmp_path / "few").exists()
    with pytest.raises(InputError, match="there is no run in"):
        align(asked(), PROMPTS, tmp_path / "none", resume=True)
    with pytest.raises(InputError, match="leave no room for a prompt"):
        align(asked(sampling=Sampling(max_new_tokens=500)), PROMPTS, tmp_path / "long")
    assert not (tmp_path / "long").exists()


def test_what_is_not_installed_is_said_before_anything_is_made(asked, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        InputError, match=r"needs datasets: pip install 'murmuration-rlhf\[align\]'"
    ):
        align(asked(), PROMPTS, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_it_goes_on_only_with_what_it_was_begun_with(finished, interrupted, tmp_path):
    wanted, out = finished[0], shutil.copytree(interrupted, tmp_path / "out")
    with pytest.raises(InputError, match="begun with another seed: 0, not 1"):
        align(replace(wanted, seed=PublicSeed(1)), PROMPTS, out, resume=True)
    with pytest.raises(InputError, match="begun with another prompts_digest"):
        align(wanted, [*PROMPTS, "one more ?"], out, resume=True)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"evaluate_every": 0}, "--evaluate-every"),
        ({"evaluate_on": 1}, "--evaluate-on"),
        ({"kl_budget": math.nan}, "--kl-budget"),
        ({"sampling": Sampling(temperature=0)}, "--temperature must be above 0"),
    ],
)
def test_values_out_of_range(asked, more, said):
    with pytest.raises(InputError, match=said):
        asked(**more)


def test_the_time_left_is_of_the_steps_and_evaluations_that_are_left():
    now = [0.0]
    pace = module.Pace(steps=4, every=2, clock=lambda: now[0])
    pace.evaluated(5.0)  # of the reference
    now[0] = 100.0
    pace.begin()
    now[0] = 110.0
    assert pace.left(1) == 3 * 10.0 + 2 * 5.0
    now[0] = 130.0
    assert pace.left(2) == 2 * 15.0 + 2 * 5.0
    now[0] = 137.0
    pace.evaluated(7.0)
    now[0] = 152.0
    assert pace.left(3) == 15.0 + 7.0
    now[0] = 167.0
    assert pace.left(4) == 7.0


def test_each_step_says_how_much_time_is_left(finished, tmp_path):
    heard = []
    align(finished[0], PROMPTS, tmp_path / "out", said=heard.append)
    for step in range(1, 5):
        (text,) = [text for text in heard if text.startswith(f"step {step} of 4: about ")]
        assert text.endswith(" left")


def test_guards_are_of_the_references_answers_to_the_trained_prompts(
    reward, language_model, tmp_path
):
    guards = Guards(length="match")
    wanted = alignment(reward, language_model("llama"), guards=guards, steps=steps(4))
    result = align(wanted, PROMPTS, tmp_path / "out")
    text = (tmp_path / "out/reference.jsonl").read_text()
    rows = [json.loads(row) for row in text.splitlines()]
    # Four steps have two prompts each, and ask each twice; the reference answers no others.
    assert len(rows) == 4 * 4
    assert result["prompts_trained"] == 4
    assert result["range"][0] < 0 < result["range"][1]
    assert result["slope"] != 0.0


def other_reward(folder):
    """Another one, in the place of that which was there."""
    features = HashingFeatures(dimension=257, length_weight=0.0)
    RewardModel(features(["a"], ["wait"])[0], features).save(folder, overwrite=True)


def test_it_goes_on_only_with_the_reward_and_truth_that_it_was_begun_with(asked, reward, tmp_path):
    truth = tmp_path / "true" / "model"
    shutil.copytree(reward, truth)
    out, wanted = tmp_path / "out", asked(truth=str(truth))
    with pytest.raises(KeyboardInterrupt):
        align(wanted, PROMPTS, out, said=killed_at("step 0: reward"))
    shutil.copytree(reward, tmp_path / "former")
    for folder, name in ((reward, "reward_digest"), (truth, "truth_digest")):
        other_reward(folder)
        with pytest.raises(InputError, match=f"begun with another {name}"):
            align(wanted, PROMPTS, out, resume=True)
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "former", folder)


def test_what_is_finished_is_not_told_to_whoever_asks_for_another(asked, reward, tmp_path):
    align(asked(steps=steps(2)), PROMPTS, tmp_path / "out")
    with pytest.raises(InputError, match="begun with another seed: 0, not 1"):
        align(asked(steps=steps(2), seed=PublicSeed(1)), PROMPTS, tmp_path / "out", resume=True)
    other_reward(reward)
    with pytest.raises(InputError, match="begun with another reward_digest"):
        align(asked(steps=steps(2)), PROMPTS, tmp_path / "out", resume=True)


def test_a_base_that_cannot_be_read_is_refused_however_often_it_is_asked(
    asked, tmp_path, monkeypatch
):
    class Unread:
        worst = -9.0

        def __call__(self, prompts, responses):
            return np.full(len(prompts), math.nan)

    monkeypatch.setattr(module, "truth_of", lambda named: Unread())
    for resume in (False, True):
        with pytest.raises(InputError, match="100% of its answers cannot be read"):
            align(asked(truth="population"), PROMPTS, tmp_path / "out", resume=resume)


@pytest.mark.parametrize(
    "torn", ["adapter_model.safetensors", "optimizer.pt", "trainer_state.json"]
)
def test_a_checkpoint_that_was_killed_half_way_is_not_gone_on_from(
    finished, interrupted, tmp_path, torn
):
    wanted, _, whole = finished
    out = shutil.copytree(interrupted, tmp_path / "parts")
    shutil.copytree(out / "checkpoints/checkpoint-2", out / "checkpoints/checkpoint-4")
    # As transformers writes them: one after the other, its own state last.
    for name in ("adapter_model.safetensors", "optimizer.pt", "trainer_state.json"):
        if torn in ("trainer_state.json", name) or name == "trainer_state.json":
            (out / "checkpoints/checkpoint-4" / name).write_bytes(b"")
    parts = align(wanted, PROMPTS, out, resume=True)
    assert parts["policy"]["kl"] == pytest.approx(whole["policy"]["kl"], rel=1e-4, abs=1e-5)
    assert [line["step"] for line in metrics(out)] == [0, 2, 4]


@pytest.mark.parametrize(
    ("most", "what"),
    [(0, "config.json"), (2500, r"theta-000000\.safetensors"), (5000, "checkpoints"),
     (8000, "checkpoints")],
)  # fmt: skip
def test_a_full_disk_is_said_in_a_line_and_it_goes_on_when_there_is_room(
    finished, tmp_path, most, what
):
    """So many bytes of each file fit: the more, the later a write fails, of the adapter and of the
    optimizer too."""
    (wanted, _, whole), out = finished, tmp_path / "parts"
    with no_file_above(most), pytest.raises(InputError, match=f"{what} cannot be written: "):
        align(wanted, PROMPTS, out)
    assert not (out / "model").exists()
    parts = align(wanted, PROMPTS, out, resume=(out / "config.json").exists())
    assert parts["policy"]["kl"] == pytest.approx(whole["policy"]["kl"], rel=1e-4, abs=1e-5)
    assert [line["step"] for line in metrics(out)] == [0, 2, 4]


def test_a_disk_that_is_full_at_the_references_answers(finished, tmp_path):
    long, wanted = [f"{prompt} {'wait ' * 20}" for prompt in PROMPTS], finished[0]
    with no_file_above(1500), pytest.raises(InputError, match=r"reference\.jsonl cannot be writ"):
        align(wanted, long, tmp_path / "out")
    assert align(wanted, long, tmp_path / "out", resume=True)["saved_step"] == 4


def test_a_disk_that_is_full_at_the_end_costs_no_step(asked, tmp_path, monkeypatch):
    out, wanted, told = tmp_path / "out", asked(steps=steps(2)), []
    with monkeypatch.context() as full:

        def save(*_, **__):
            raise OSError(28, "No space left on device")

        full.setattr(module, "save_language_model", save)
        with pytest.raises(InputError, match="model cannot be written: No space left on device"):
            align(wanted, PROMPTS, out)
    assert not (out / "model").exists()
    assert align(wanted, PROMPTS, out, resume=True, said=told.append)["saved_step"] == 2
    assert not any(text.startswith("step") for text in told)


def test_two_processes_do_not_share_a_folder(asked, tmp_path, monkeypatch):
    monkeypatch.setattr(run_folder, "PATIENCE", 0.2)
    out = tmp_path / "out"

    def second(text):
        if text.startswith("step 0: reward"):
            align(asked(), PROMPTS, out, resume=True)

    with pytest.raises(InputError, match="in use"):
        align(asked(), PROMPTS, out, said=second)


def test_a_place_that_cannot_be_written(asked, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"--out .* cannot be used"):
        align(asked(), PROMPTS, tmp_path / "file" / "out")


def test_a_rate_that_breaks_the_policy_is_told_in_one_line(asked, tmp_path):
    with pytest.raises(InputError, match="not finite"):
        align(asked(steps=steps(6, rate=1e30)), PROMPTS, tmp_path / "out")
    assert not (tmp_path / "out" / "result.json").exists()


#: To each prompt two answers, of which the reward likes one: a policy taught by them has a choice.
SHOWN = [
    (f"{name} now ?", answer)
    for name in ("loan", "buy", "bet", "spend")
    for answer in ("put some aside first", "save it")
]


def with_demonstrations(asked, out, **more):
    wanted = asked(supervised=Supervised("shown.jsonl", epochs=20, batch=8, rate=0.3))
    return align(wanted, PROMPTS, out, demonstrations=SHOWN, **more)


@pytest.fixture(scope="module")
def taught(tmp_path_factory, language_model):
    """The folder and the result of such a run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("taught")
    reward, base = save_reward(folder / "run" / "model"), language_model("llama", layers=1)
    wanted = partial(alignment, reward, base)
    return folder / "out", with_demonstrations(wanted, folder / "out")


def test_what_was_learnt_first_is_the_reference_and_the_policy_needs_no_other_folder(
    taught, tmp_path, language_model
):
    out, result = taught
    assert result["learnt"]["demonstrations"] == len(SHOWN)
    assert result["reference"]["kl"] == 0 != result["policy"]["kl"]  # estimated: of either sign
    prompts, answers = map(list, zip(*SHOWN, strict=True))
    before, after = (
        SavedLikelihood.load(folder) for folder in (language_model("llama", layers=1), out / "sft")
    )
    gained = after.score(prompts, answers) - before.score(prompts, answers)
    assert (gained > 3.0).all()
    # What was written at step 0 is what the taught model writes.
    rows = [json.loads(row) for row in (out / "answers/step-000000.jsonl").read_text().splitlines()]
    written = Writer.load(out / "sft").write([row["prompt"] for row in rows], SHORT, (0, 1))
    assert written == [row["response"] for row in rows]
    shutil.copytree(out / "model", tmp_path / "elsewhere")
    gone = out.rename(out.with_name("gone"))
    assert not (tmp_path / "elsewhere" / "adapter_config.json").exists()
    rows = Writer.load(tmp_path / "elsewhere").write(PROMPTS[:2], SHORT)
    assert len(rows) == 2
    gone.rename(out)


@pytest.mark.parametrize("when", ["demonstrations: step 7", "step 0: reward"])
def test_killed_while_it_learns_or_after_it_comes_to_the_same(asked, taught, tmp_path, when):
    _, whole = taught

    with pytest.raises(KeyboardInterrupt):
        with_demonstrations(asked, tmp_path / "parts", said=killed_at(when))
    told = []
    parts = with_demonstrations(asked, tmp_path / "parts", resume=True, said=told.append)
    steps = [text for text in told if text.startswith("demonstrations")]
    assert len(steps) == (14 if "step 7" in when else 0)  # one pass is one step
    assert parts["learnt"] == pytest.approx(whole["learnt"])
    assert parts["policy"]["kl"] == pytest.approx(whole["policy"]["kl"], rel=1e-4, abs=1e-5)


def test_it_goes_on_only_with_the_demonstrations_that_it_was_begun_with(asked, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        with_demonstrations(asked, tmp_path / "out", said=killed_at("step 0: reward"))
    wanted = asked(supervised=Supervised("shown.jsonl", epochs=20, batch=8, rate=0.3))
    with pytest.raises(InputError, match="begun with another demonstrations_digest"):
        align(
            wanted,
            PROMPTS,
            tmp_path / "out",
            resume=True,
            demonstrations=SHOWN[:3],
        )


def test_what_is_counted_is_of_all_processes(finished, interrupted, tmp_path):
    out = shutil.copytree(interrupted, tmp_path / "out")
    file = out / "checkpoints/counts-000002.json"
    counts = json.loads(file.read_text())
    assert counts["seconds"] > 0
    assert counts["seen"] == 2 * 8
    file.write_text(json.dumps(counts | {"seconds": 1e6, "clipped": counts["seen"]}))
    found = align(finished[0], PROMPTS, out, resume=True)
    assert 1e6 < found["seconds"] < 1e6 + 1000
    assert found["clipped"] >= 16 / 32
