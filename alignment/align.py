"""From a reward to a policy: climb it on public prompts, and watch what that is worth.

Post-processing: the reward was released with a promise, prompts are public, and nothing else is
read. The result has no further privacy cost, so its card states the reward's guarantee.

A folder ``OUT`` holds:

    config.json       what was asked for, with digests of what was read
    base.json         where the base is, by which what was saved finds it again
    sft/              where demonstrations were learnt first: the base after that, and a card
    reference.jsonl   the reference's answers that guards were fitted to
    metrics.jsonl     a line for each evaluation
    answers/          what was written to the evaluation's prompts, by step
    model/            the policy: LoRA layers of the base, and a card
    result.json       what came of it
    report.html, plots/
    checkpoints/      to go on from; removed at the end
    private/lock      as of every run (``server.record.run_folder``)

Training ends early where the divergence passes its budget, or where the reward that is climbed and
the true one part: the first goes on rising while the second is worse than it was, beyond chance, at
two evaluations in a row. What is saved is then the policy of the last evaluation within the budget,
or of the one that was truly best (so a truth that stops a run also chooses: measure it on other
prompts).

Legend: P prompts, K answers of the reference to each.
"""

import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from murmuration.alignment.evaluation import (
    BUDGET,
    PARTED,
    POPULATION,
    Evaluation,
    Evaluator,
    check_readable,
    kl_is,
    truth_of,
)
from murmuration.alignment.reinforce import Steps, last_checkpoint, train_policy, trainer_of
from murmuration.alignment.report import WHY, card, learnt_card, write_report
from murmuration.alignment.rewards import AnswerReward, GuardedReward, Guards
from murmuration.alignment.supervised import Rows, Supervised, supervise
from murmuration.alignment.writing import answer_lines, read_lines, writing
from murmuration.preference.base_names import resolve_base
from murmuration.preference.data.errors import InputError
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings, resolved
from murmuration.preference.language.checkpoint import digest_of, origin_below
from murmuration.preference.language.generation import PublicSeed, Sampling, Writer
from murmuration.preference.language.loading import contents_of
from murmuration.preference.language.reward import save_language_model
from murmuration.preference.model_folder import SaveOptions
from murmuration.privacy.disclosure import Disclosure
from murmuration.privacy.durable_files import replace_file
from murmuration.privacy.figures import duration
from murmuration.privacy.promise import Promise
from murmuration.privacy.strict_json import json_lines
from murmuration.reporting.promise import details
from murmuration.server.record.lineage import files_of
from murmuration.server.record.marks import mark_of
from murmuration.server.record.run_files import read_json
from murmuration.server.record.run_folder import RunFolder, check_place

FORMAT = "murmuration-aligned-1"
#: Layers that LoRA changes where nobody says which: no noise is added here, and two learnt less in
#: as many steps (`docs/research/real-people.md`).
_USUALLY = 8
_ALPHA = 2  # of LoRA, in ranks: with it the learning rate was chosen
_ANSWERS = 4  # of the reference to each prompt, for guards


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """The settings of an alignment.

    Attributes:
        reward: the folder of a reward model, as RUN/model.
        base: the policy that it begins from, and its reference unless demonstrations are learnt.
        prompts: the source of prompts.
        truth: ``population``, the folder of a reward model, or empty for none.
        supervised: training on demonstrations that comes first; its result is the reference.
        steps, sampling, guards: optimization, generation, and guards against reward hacking.
        lora_rank, lora_targets, max_tokens: as of `BaseSettings`.
        lora_layers: as its ``layers``; ``auto``: the last eight, or all where there are no more.
        system: as there.
        evaluate_every: steps between evaluations.
        evaluate_on: prompts that are held out for them.
        kl_budget: nats; 0 for none.
        seed: of prompts' order and answers.

    Raises:
        InputError: a value out of range.
    """

    reward: str
    base: str
    prompts: str
    truth: str = ""
    supervised: Supervised = field(default_factory=Supervised)
    steps: Steps = field(default_factory=Steps)
    sampling: Sampling = field(default_factory=Sampling)
    guards: Guards = field(default_factory=Guards)
    lora_rank: int = 16
    lora_targets: str = ""
    lora_layers: str = "auto"
    max_tokens: int = BaseSettings.max_tokens
    system: str = BaseSettings.system
    evaluate_every: int = 10
    evaluate_on: int = 50
    kl_budget: float = 0.0
    seed: PublicSeed = field(default_factory=PublicSeed)

    def __post_init__(self) -> None:
        for name, least in (("evaluate_every", 1), ("evaluate_on", 2)):
            if getattr(self, name) < least:
                option = "--" + name.replace("_", "-")
                raise InputError(f"{option} must be at least {least}; got {getattr(self, name)}")
        if not (math.isfinite(self.kl_budget) and self.kl_budget >= 0):
            raise InputError(f"--kl-budget must not be negative; got {self.kl_budget}")
        if not self.sampling.temperature:
            raise InputError("--temperature must be above 0: a policy learns from what it draws")

    def to_json(self) -> dict[str, Any]:
        """The settings for ``config.json``."""
        return {"format": FORMAT, **asdict(self), "seed": self.seed.value}


OnStatus = Callable[[str], None]


def align(
    alignment: Alignment,
    prompts: Sequence[str],
    out: Path,
    promise: Promise,
    *,
    resume: bool = False,
    demonstrations: Rows = (),
    base_promise: Promise | None = None,
    on_status: OnStatus = lambda text: None,
) -> dict[str, Any]:
    """Train a policy into a folder; return the content of ``result.json``.

    Args:
        alignment: the settings.
        prompts: public ones.
        out: must not be there, unless ``resume``; then it must have been begun with the same.
        promise: what users of the base, the reward, and a truth that is a model were promised.
        resume: go on from the last checkpoint.
        demonstrations: public prompts with answers, which are learnt first, as
            ``alignment.supervised`` says.
        base_promise: what users of the base and of the demonstrations were promised.
        on_status: is called with a text at each stage.

    Raises:
        InputError: what cannot be used, and why; or nothing was learnt. What was done by then is
            kept for ``resume``.
    """
    distinct, of_a_step = list(dict.fromkeys(prompts)), alignment.steps.prompts
    if len(distinct) < alignment.evaluate_on + of_a_step:
        raise InputError(
            f"--prompts {alignment.prompts}: {len(distinct):,} different prompts; --evaluate-on "
            f"{alignment.evaluate_on} and a step's {of_a_step} need more"
        )
    config = {**alignment.to_json(), **_digests(alignment, distinct, demonstrations)}
    same = partial(_check_same, config)
    check_place(out, resume, same)
    if resume and (finished := read_json(out / "result.json")):
        return finished
    order = np.random.default_rng([alignment.seed.value, 0]).permutation(len(distinct)).tolist()
    held = [distinct[place] for place in order[: alignment.evaluate_on]]
    # For each the reference answers four times: asked twice, it writes half of what steps do.
    needed = max(of_a_step, -(-alignment.steps.steps * of_a_step // 2))
    most = alignment.evaluate_on + needed
    trained = [distinct[place] for place in order[alignment.evaluate_on : most]]
    on_status("loading")
    trainer_of(alignment.steps.method)  # or says what is not installed
    reward = AnswerReward.load(alignment.reward)
    truth = truth_of(alignment.truth) if alignment.truth else None
    base = _base(alignment, alignment.base, "sft" if demonstrations else "policy")
    origin = origin_below(base.settings.path)
    # Or says what does not fit.
    base.texts.openings(held[:1], alignment.sampling.max_new_tokens)
    with RunFolder(out, resume=resume, check_same=same) as folder:
        if folder.is_new:
            _write_json(folder, "config.json", config)
            place = {"path": base.settings.path, "digest": base.settings.digest}
            _write_json(folder, "base.json", place)
        with writing(f"--out {out}"):
            for name in ("answers", "checkpoints"):
                (out / name).mkdir(exist_ok=True)
        began, learnt, mark = time.monotonic(), None, mark_of(promise)
        if demonstrations:
            learnt = _learnt(
                alignment,
                base,
                demonstrations,
                base_promise or promise,
                config,
                out=out,
                on_status=on_status,
            )
            base = _base(alignment, str(out / "sft"), "policy")
        guarded = _guarded(alignment, base, reward, trained, out, mark=mark, on_status=on_status)
        evaluator = Evaluator(
            base, held, reward, truth, alignment.sampling, seed=alignment.seed.value
        )
        sofar = _SoFar(guarded, reward, began)
        watch = _Watch(alignment, base, evaluator, out, mark, on_status=on_status, sofar=sofar)
        watch.start()
        if not watch.stopped:  # as it may have by a crash
            watch.pace.begin()
            train_policy(
                base,
                trained,
                guarded,
                alignment.steps,
                alignment.sampling,
                seed=alignment.seed.value,
                folder=out / "checkpoints",
                on_step=watch,
                every=alignment.evaluate_every,
                progress=watch.step_done,
            )
        chosen = watch.chosen()
        if not chosen.step:
            raise InputError(
                f"nothing was learnt: {WHY[watch.stopped]} at step {watch.evaluations[-1].step}, "
                f"before any policy that is better than the base ({out / 'metrics.jsonl'}): lower "
                "--learning-rate, raise --kl-coef, evaluate more often, or guard the reward"
            )
        watch.restore(chosen.step)
        result = {
            **config,
            "lora_layers": base.settings.layers,
            "stopped": watch.stopped,
            "saved_step": chosen.step,
            "reference": watch.evaluations[0].to_json(),
            "policy": chosen.to_json(),
            "learnt": learnt,
            "prompts_trained": len(trained),
            "dimension": base.dimension,
            "clipped": guarded.clipped / max(1, guarded.seen),
            "too_long": reward.too_long,
            "range": [guarded.low, guarded.high],
            "slope": guarded.slope,
            "seconds": round(sofar.seconds, 1),
            "kl_is": kl_is(alignment.sampling),
            "resumed": resume,
            "promise": promise.to_json(),
            "origin": origin,
        }
        with writing(out / "model"):
            save_language_model(
                out / "model",
                base,
                base.theta(),
                options=_options(
                    card(result, promise), promise, overwrite=(out / "model").exists()
                ),
            )
        with writing(out / "report.html"):
            write_report(out, result, promise)
        _write_json(folder, "result.json", result)
        shutil.rmtree(out / "checkpoints", ignore_errors=True)
        return result


def _base(alignment: Alignment, path: str, task: str) -> LanguageBase:
    settings = BaseSettings(
        path=path,
        task=task,
        train="lora",
        rank=alignment.lora_rank,
        alpha=_ALPHA * alignment.lora_rank,
        targets=alignment.lora_targets,
        layers=alignment.lora_layers,
        max_tokens=alignment.max_tokens,
        system=alignment.system,
        dtype="float32",
    )
    return LanguageBase(resolved(settings, _USUALLY))


def _learnt(
    alignment: Alignment,
    base: LanguageBase,
    demonstrations: Rows,
    promise: Promise,
    config: Mapping[str, Any],
    *,
    out: Path,
    on_status: OnStatus,
) -> dict[str, Any]:
    """Train on demonstrations into ``OUT/sft``, unless it is complete; return the entries for the
    result.
    """
    file = out / "checkpoints" / "sft.json"
    if not (out / "sft").exists():
        theta_D, loss = supervise(
            base,
            demonstrations,
            alignment.supervised,
            alignment.seed.value,
            out / "checkpoints" / "sft.pt",
            progress=lambda done, of: on_status(f"demonstrations: step {done:,} of {of:,}"),
        )
        result = {"demonstrations": len(demonstrations), "loss": loss, "dimension": base.dimension}
        _write(file, json_lines([result]))
        origin = origin_below(base.settings.path)
        described = {**config, "learnt": result, "origin": origin}
        with writing(out / "sft"):
            save_language_model(
                out / "sft",
                base,
                theta_D,
                options=_options(learnt_card(described, promise), promise),
            )
    return json.loads(file.read_text(encoding="utf-8"))


def _options(card: str, promise: Promise, *, overwrite: bool = False) -> SaveOptions:
    return SaveOptions(card, overwrite, partial(files_of, promise, details=details(promise)))


def _digests(alignment: Alignment, prompts: Sequence[str], demonstrations: Rows) -> dict[str, str]:
    """Digests of all inputs: a folder that is resumed must have been begun with the same, as its
    card states one reward's promise.
    """
    folder = alignment.truth not in ("", POPULATION)
    return {
        "base_digest": contents_of(resolve_base(alignment.base)).digest,
        "reward_digest": digest_of(Path(alignment.reward)),
        "truth_digest": digest_of(Path(alignment.truth).expanduser()) if folder else "",
        "prompts_digest": _digest(list(prompts)),
        "demonstrations_digest": _digest(list(demonstrations)) if demonstrations else "",
    }


def _digest(texts: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


def _check_same(config: Mapping[str, Any], settings: Path) -> None:
    """Raise InputError for a folder that was begun with other things."""
    try:
        before = json.loads(settings.read_text(encoding="utf-8"))
        former = before["format"]
    except (OSError, ValueError, KeyError, TypeError):
        former = None
    if former != FORMAT:
        raise InputError(f"--resume: {settings.parent} holds no alignment")
    for name in sorted(config.keys() | before.keys()):
        if before.get(name) != json.loads(json.dumps(config.get(name))):
            raise InputError(
                f"--resume: {settings.parent} was begun with another {name}: "
                f"{before.get(name)!r}, not {config.get(name)!r}"
            )


def _guarded(
    alignment: Alignment,
    base: LanguageBase,
    reward: AnswerReward,
    prompts: Sequence[str],
    out: Path,
    *,
    mark: Mapping[str, str],
    on_status: OnStatus,
) -> GuardedReward:
    """The reward that is climbed, with guards fitted to the reference's answers, which are kept."""
    file, many = out / "reference.jsonl", _ANSWERS
    if not file.exists():
        writer = Writer(base.model, base.texts)
        asked_R = [prompt for prompt in prompts for _ in range(many)]

        def progress(done: int, of: int) -> None:
            on_status(f"the reference's answers: {done:,} of {of:,}")

        answers = writer.write(asked_R, alignment.sampling, (alignment.seed.value, 0), progress)
        _write(file, answer_lines(asked_R, [[answer] for answer in answers], mark))
    answers = [row["response"] for row in read_lines(file)]
    answers_PK = [answers[at : at + many] for at in range(0, len(answers), many)]
    return GuardedReward(reward, alignment.guards, prompts, answers_PK)


class _SoFar:
    """Counts since the beginning, including earlier processes."""

    def __init__(self, guarded: GuardedReward, reward: AnswerReward, began: float) -> None:
        self._guarded, self._reward, self._began = guarded, reward, began

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def to_json(self) -> dict[str, float]:
        return {
            "clipped": self._guarded.clipped,
            "seen": self._guarded.seen,
            "too_long": self._reward.too_long,
            "seconds": self.seconds,
        }

    def go_on(self, before: Mapping[str, Any]) -> None:
        """Continue from what an earlier process had counted."""
        self._guarded.clipped, self._guarded.seen = int(before["clipped"]), int(before["seen"])
        self._reward.too_long = int(before["too_long"])
        self._began -= float(before["seconds"])


class Pace:
    """An estimate of the remaining training time, from the steps and evaluations of this process.

    Args:
        steps: their number.
        every: steps between evaluations; the last step is followed by one, too.
        clock: monotonic seconds.
    """

    def __init__(self, steps: int, every: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._steps, self._every, self._clock = steps, every, clock
        self._evaluation = 0.0
        self.begin()

    def begin(self) -> None:
        """Count steps from now on."""
        self._began, self._done, self._evaluating = self._clock(), 0, 0.0

    def evaluated(self, seconds: float) -> None:
        """Take note of how long an evaluation took."""
        self._evaluating, self._evaluation = self._evaluating + seconds, seconds

    def left(self, step: int) -> float:
        """The number of seconds left after a step of training."""
        self._done += 1
        each = (self._clock() - self._began - self._evaluating) / self._done
        ahead = range(step, self._steps + 1)  # a step is evaluated after this was asked
        evaluations = sum(at % self._every == 0 or at == self._steps for at in ahead)
        return each * (self._steps - step) + self._evaluation * evaluations


class _Watch:
    """Evaluates, keeps what was evaluated, and says when to stop."""

    def __init__(
        self,
        alignment: Alignment,
        base: LanguageBase,
        evaluator: Evaluator,
        out: Path,
        mark: Mapping[str, str],
        *,
        on_status: OnStatus,
        sofar: _SoFar,
    ) -> None:
        self._alignment, self._base, self._evaluator = alignment, base, evaluator
        self._out, self._mark, self._on_status, self._sofar = out, mark, on_status, sofar
        self.evaluations: list[Evaluation] = []
        self.stopped = ""
        self.pace = Pace(alignment.steps.steps, alignment.evaluate_every)

    def step_done(self, step: int) -> None:
        """Report the step and the time left."""
        left, steps = duration(self.pace.left(step)), self._alignment.steps.steps
        self._on_status(f"step {step:,} of {steps:,}: about {left} left")

    def start(self) -> None:
        """Evaluate the reference, or read what was evaluated up to the last checkpoint."""
        last = last_checkpoint(self._out / "checkpoints")
        done = int(last.rpartition("-")[2]) if last else -1
        for line in self._lines():
            if line["step"] <= done or line["step"] == 0:
                result = Evaluation(**line)
                answers = [row["response"] for row in read_lines(self._answers(result.step))]
                self._evaluator.remember(result.step, answers)
                self._add(result)
        if self.evaluations:
            self._sofar.go_on(json.loads(self._counts(self.evaluations[-1].step).read_bytes()))
        else:
            self(0)
        check_readable(self.evaluations[0], self._alignment.base)

    def __call__(self, step: int) -> bool:
        """Evaluate the policy as it is; whether to stop."""
        began = time.monotonic()
        result = self._evaluator(
            step, lambda done, of: self._on_status(f"step {step}: {done:,} of {of:,} answers")
        )
        answers = [[answer] for answer in self._evaluator.answers[step]]
        lines = answer_lines(self._evaluator.prompts, answers, self._mark)
        _write(self._answers(step), lines)
        with writing(self._theta(step)):
            save_file({"theta_D": self._base.theta()}, self._theta(step))
        _write(self._counts(step), json_lines([self._sofar.to_json()]))
        self._add(result)
        _write(self._out / "metrics.jsonl", json_lines(one.to_json() for one in self.evaluations))
        self._on_status(self._status_text(result))
        self.pace.evaluated(time.monotonic() - began)
        return bool(self.stopped)

    def _add(self, one: Evaluation) -> None:
        self.evaluations.append(one)
        if self._alignment.kl_budget and one.kl > self._alignment.kl_budget:
            self.stopped = BUDGET
        elif self._parted():
            self.stopped = PARTED

    def _parted(self) -> bool:
        """True if at the last two evaluations the proxy reward was above, and the true reward
        below, their values where the true reward was best.
        """
        if len(self.evaluations) < 3 or self.evaluations[0].truth is None:
            return False
        best = max(self.evaluations[:-2], key=_truth)
        return all(
            one.proxy > best.proxy and self._evaluator.worse(one.step, best.step)
            for one in self.evaluations[-2:]
        )

    def chosen(self) -> Evaluation:
        """The evaluation whose policy is saved."""
        if self.stopped == PARTED:
            return max(self.evaluations, key=_truth)
        budget = self._alignment.kl_budget or math.inf
        return [one for one in self.evaluations if one.kl <= budget or not one.step][-1]

    def restore(self, step: int) -> None:
        """Put the policy of an evaluation back."""
        self._base.put(load_file(self._theta(step))["theta_D"])

    def _status_text(self, one: Evaluation) -> str:
        truth = "" if one.truth is None else f", true reward {one.truth:+.2f}"
        kind = kl_is(self._alignment.sampling)
        return f"step {one.step}: reward {one.proxy:+.2f}, {kind} {one.kl:.2f}{truth}"

    def _lines(self) -> list[dict[str, Any]]:
        try:
            rows = read_lines(self._out / "metrics.jsonl")
        except FileNotFoundError:
            return []
        return [
            {name: math.nan if value is None and name == "kl_error" else value
             for name, value in row.items()}
            for row in rows
        ]  # fmt: skip

    def _answers(self, step: int) -> Path:
        return self._out / "answers" / f"step-{step:06d}.jsonl"

    def _counts(self, step: int) -> Path:
        return self._out / "checkpoints" / f"counts-{step:06d}.json"

    def _theta(self, step: int) -> Path:
        return self._out / "checkpoints" / f"theta-{step:06d}.safetensors"


def _truth(one: Evaluation) -> float:
    return -math.inf if one.truth is None else one.truth


def _write_json(folder: RunFolder, name: str, content: Mapping[str, Any]) -> None:
    # Post-processing: of released models, public prompts and settings.
    with writing(folder.path / name):
        folder.write_json(name, Disclosure.public(content))


def _write(file: Path, content: bytes) -> None:
    with writing(file):
        replace_file(file, content)
