"""From a reward to a policy: climb it on public prompts, and watch what that is worth.

Post-processing: the reward was released with a promise, prompts are public, and nothing else is
read. What comes out costs nobody anything further, so its card carries the reward's promise.

A folder ``OUT`` holds:

    config.json       what was asked for, with digests of what was read
    sft/              where demonstrations were learnt first: the base after that, and a card
    reference.jsonl   the reference's answers that guards were fitted to
    metrics.jsonl     a line for each evaluation
    answers/          what was written to the evaluation's prompts, by step
    model/            the policy: LoRA layers of the base, and a card
    result.json       what came of it; plots lie beside it
    checkpoints/      to go on from; removed at the end

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
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from murmuration.alignment.evaluation import (
    POPULATION,
    Evaluation,
    Evaluator,
    check_readable,
    kl_is,
    truth_of,
)
from murmuration.alignment.iterates import files_of
from murmuration.alignment.reinforce import Steps, last_checkpoint, train_policy
from murmuration.alignment.rewards import AnswerReward, GuardedReward, Guards
from murmuration.alignment.supervised import Rows, Supervised, supervise
from murmuration.alignment.writing import answer_lines, json_lines, writing
from murmuration.preference.data.judgements import InputError
from murmuration.preference.language.base_model import BaseSettings, LanguageBase
from murmuration.preference.language.checkpoint import digest_of
from murmuration.preference.language.generation import PublicSeed, Sampling, Writer
from murmuration.preference.language.loading import contents_of, resolve_base
from murmuration.preference.language.reward import save_language_model
from murmuration.privacy.durable_files import replace_file
from murmuration.server.run_lock import RunInUse, RunLock

FORMAT = "murmuration-aligned-1"
PARTED, BUDGET = "parted", "kl"
_ANSWERS = 4  # of the reference to each prompt, for guards
#: What reasons of ending are called.
WHY = {
    "": "all steps were made",
    BUDGET: "the divergence from the base passed its budget",
    PARTED: "the reward went on rising while the true reward fell",
}


@dataclass(frozen=True)
class Alignment:
    """What is asked for.

    Attributes:
        reward: RUN/model of a reward.
        base: the policy that it begins from, and its reference unless demonstrations are learnt.
        prompts: where prompts are from.
        truth: ``population``, the folder of a reward model, or empty for none.
        supervised: what is learnt first; the reference is what comes of that.
        steps, sampling, guards: how it climbs, writes, and is kept from gaming the reward.
        lora_rank, lora_alpha, lora_targets, max_tokens: as of `BaseSettings`.
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
    lora_alpha: int = 32
    lora_targets: str = ""
    max_tokens: int = BaseSettings.max_tokens
    evaluate_every: int = 10
    evaluate_on: int = 200
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
        """For ``config.json``."""
        return {"format": FORMAT, **asdict(self), "seed": self.seed.value}


Said = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Demonstrations:
    """Public prompts with answers, and what stands beside what they make of the base: its README.md
    from what is known by then, and more files, as of `align`."""

    rows: Rows
    card: Callable[[Mapping[str, Any]], str] = lambda result: ""
    beside: Callable[[Path], Mapping[str, bytes]] | None = None


def align(
    asked: Alignment,
    prompts: Sequence[str],
    out: Path,
    *,
    resume: bool = False,
    demonstrations: Demonstrations | None = None,
    card: Callable[[Mapping[str, Any]], str] = lambda result: "",
    beside: Callable[[Path], Mapping[str, bytes]] | None = None,
    promise: Mapping[str, Any] | None = None,
    mark: Mapping[str, str] = MappingProxyType({}),
    said: Said = lambda text: None,
) -> dict[str, Any]:
    """Train a policy into a folder; what ``result.json`` says.

    Args:
        asked: what for.
        prompts: public ones.
        out: must not be there, unless ``resume``; then it must have been asked for the same.
        resume: go on from the last checkpoint.
        demonstrations: what is learnt first, of ``asked.supervised``.
        card: README.md of the model, from the result.
        beside: more files of the model, by name, from its folder.
        promise: what its users were promised, for the result.
        mark: what each row of answers says of the runs behind them.
        said: is told what is being done.

    Raises:
        InputError: what cannot be used, and why; or nothing was learnt. What was done by then is
            kept for ``resume``.
    """
    distinct = list(dict.fromkeys(prompts))
    if len(distinct) < asked.evaluate_on + asked.steps.batch // asked.steps.answers:
        raise InputError(
            f"--prompts {asked.prompts}: {len(distinct):,} different prompts; --evaluate-on "
            f"{asked.evaluate_on} and a step's {asked.steps.batch // asked.steps.answers} need more"
        )
    config = {
        **asked.to_json(),
        **_digests(asked, distinct, demonstrations.rows if demonstrations else ()),
    }
    _check_place(config, out, resume)
    if resume and (out / "result.json").exists():
        return json.loads((out / "result.json").read_text(encoding="utf-8"))
    order = np.random.default_rng([asked.seed.value, 0]).permutation(len(distinct)).tolist()
    held = [distinct[place] for place in order[: asked.evaluate_on]]
    trained = [distinct[place] for place in order[asked.evaluate_on :]]
    said("loading")
    reward = AnswerReward.load(asked.reward, iterates=asked.guards.pessimism > 0)
    asked.guards.check(reward)
    truth = truth_of(asked.truth) if asked.truth else None
    base = _base(asked, asked.base, "sft" if demonstrations else "policy")
    base.texts.openings(held[:1], asked.sampling.max_new_tokens)  # or says what does not fit
    with closing(_begin(config, out)):
        began, learnt = time.monotonic(), None
        if demonstrations:
            learnt = _learnt(asked, base, demonstrations, config, out, said)
            base = _base(asked, str(out / "sft"), "policy")
        guarded = _guarded(asked, base, reward, trained, out, mark, said)
        evaluator = Evaluator(base, held, reward, truth, asked.sampling, asked.seed.value)
        sofar = _SoFar(guarded, reward, began)
        watch = _Watch(asked, base, evaluator, out, mark, said, sofar)
        watch.start()
        if not watch.stopped:  # as it may have by a crash
            train_policy(
                base,
                trained,
                guarded,
                asked.steps,
                asked.sampling,
                asked.seed.value,
                out / "checkpoints",
                watch,
                asked.evaluate_every,
            )
        chosen = watch.chosen()
        if not chosen.step:
            raise InputError(
                f"nothing was learnt: {WHY[watch.stopped]} at step {watch.found[-1].step}, before "
                f"any policy that is better than the base ({out / 'metrics.jsonl'}): lower "
                "--learning-rate, raise --kl-coef, evaluate more often, or guard the reward"
            )
        watch.restore(chosen.step)
        result = {
            **config,
            "stopped": watch.stopped,
            "saved_step": chosen.step,
            "reference": watch.found[0].to_json(),
            "policy": chosen.to_json(),
            "learnt": learnt,
            "prompts_trained": len(trained),
            "dimension": base.dimension,
            "clipped": guarded.clipped / max(1, guarded.seen),
            "too_long": reward.too_long,
            "range": [guarded.low, guarded.high],
            "slope": guarded.slope,
            "seconds": round(sofar.seconds, 1),
            "kl_is": kl_is(asked.sampling),
            "resumed": resume,
            "promise": dict(promise) if promise is not None else None,
        }
        with writing(out / "model"):
            save_language_model(
                out / "model",
                base,
                base.theta(),
                card=card(result),
                overwrite=(out / "model").exists(),
                beside=beside,
            )
        _write(out / "result.json", _json(result))
        shutil.rmtree(out / "checkpoints", ignore_errors=True)
        return result


def _base(asked: Alignment, path: str, task: str) -> LanguageBase:
    return LanguageBase(
        BaseSettings(
            path=path,
            task=task,
            train="lora",
            rank=asked.lora_rank,
            alpha=asked.lora_alpha,
            targets=asked.lora_targets,
            max_tokens=asked.max_tokens,
            dtype="float32",
        )
    )


def _learnt(
    asked: Alignment,
    base: LanguageBase,
    shown: Demonstrations,
    config: Mapping[str, Any],
    out: Path,
    said: Said,
) -> dict[str, Any]:
    """Learn demonstrations into ``OUT/sft``, unless it is there, whole; what is told of it."""
    file = out / "checkpoints" / "sft.json"
    if not (out / "sft").exists():
        theta_D, loss = supervise(
            base,
            shown.rows,
            asked.supervised,
            asked.seed.value,
            out / "checkpoints" / "sft.pt",
            lambda done, of: said(f"demonstrations: step {done:,} of {of:,}"),
        )
        result = {"demonstrations": len(shown.rows), "loss": loss, "dimension": base.dimension}
        _write(file, json_lines([result]))
        with writing(out / "sft"):
            save_language_model(
                out / "sft",
                base,
                theta_D,
                card=shown.card({**config, "learnt": result}),
                beside=shown.beside,
            )
    return json.loads(file.read_text(encoding="utf-8"))


def _digests(asked: Alignment, prompts: Sequence[str], demonstrations: Rows) -> dict[str, str]:
    """Of all that is read: a folder that is gone on with must have been begun with the same, as its
    card tells one reward's promise."""
    folder = asked.truth not in ("", POPULATION)
    iterates = [
        hashlib.sha256(file.read_bytes()).hexdigest()
        for file in (files_of(asked.reward) if asked.guards.pessimism else [])
    ]
    return {
        "base_digest": contents_of(resolve_base(asked.base)).digest,
        "reward_digest": digest_of(Path(asked.reward)),
        "iterates_digest": _digest(iterates) if iterates else "",
        "truth_digest": digest_of(Path(asked.truth).expanduser()) if folder else "",
        "prompts_digest": _digest(list(prompts)),
        "demonstrations_digest": _digest(list(demonstrations)) if demonstrations else "",
    }


def _digest(texts: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


def _check_place(config: Mapping[str, Any], out: Path, resume: bool) -> None:
    """InputError for a folder that is there already, or, to go on, was begun with other things."""
    if not resume:
        if out.exists() and not (out.is_dir() and _nothing_in(out)):
            raise InputError(f"--out {out} is there already; choose another, or --resume")
        return
    try:
        before = json.loads((out / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InputError(f"--resume: {out} holds no alignment: no config.json") from None
    for name in sorted(config.keys() | before.keys()):
        if before.get(name) != json.loads(json.dumps(config.get(name))):
            raise InputError(
                f"--resume: {out} was begun with another {name}: {before.get(name)!r}, not "
                f"{config.get(name)!r}"
            )


def _nothing_in(out: Path) -> bool:
    """Return whether a folder is empty but for what one has that ended before its first file was
    there."""
    entries = {*out.iterdir(), *(out / "answers").glob("*")} - {*out.glob(".config.json.*")}
    return entries <= {out / "answers", out / "checkpoints"}


def _begin(config: Mapping[str, Any], out: Path) -> RunLock:
    """Make the folder, if it is not there, and take it."""
    try:
        with writing(f"--out {out}"):
            lock = RunLock(out / "checkpoints")  # where nothing stays
            (out / "answers").mkdir(exist_ok=True)
    except RunInUse:
        raise InputError(
            f"--out {out} is in use by another process; wait for it to end, or choose another"
        ) from None
    if not (out / "config.json").exists():
        _write(out / "config.json", _json(config))
    return lock


def _guarded(
    asked: Alignment,
    base: LanguageBase,
    reward: AnswerReward,
    prompts: Sequence[str],
    out: Path,
    mark: Mapping[str, str],
    said: Said,
) -> GuardedReward:
    """The reward that is climbed, with guards fitted to the reference's answers, which are kept."""
    file, many = out / "reference.jsonl", _ANSWERS
    if not file.exists():
        writer = Writer(base.model, base.texts)
        asked_R = [prompt for prompt in prompts for _ in range(many)]

        def progress(done: int, of: int) -> None:
            said(f"the reference's answers: {done:,} of {of:,}")

        answers = writer.write(asked_R, asked.sampling, (asked.seed.value, 0), progress)
        _write(file, answer_lines(asked_R, [[answer] for answer in answers], mark))
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    answers = [row["response"] for row in rows]
    answers_PK = [answers[at : at + many] for at in range(0, len(answers), many)]
    return GuardedReward(reward, asked.guards, prompts, answers_PK)


class _SoFar:
    """What was counted since the beginning, also in processes that ended before."""

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

    def go_on(self, found: Mapping[str, Any]) -> None:
        """From what an earlier process had counted."""
        self._guarded.clipped, self._guarded.seen = int(found["clipped"]), int(found["seen"])
        self._reward.too_long = int(found["too_long"])
        self._began -= float(found["seconds"])


class _Watch:
    """Evaluates, keeps what was evaluated, and says when to stop."""

    def __init__(
        self,
        asked: Alignment,
        base: LanguageBase,
        evaluator: Evaluator,
        out: Path,
        mark: Mapping[str, str],
        said: Said,
        sofar: _SoFar,
    ) -> None:
        self._asked, self._base, self._evaluator = asked, base, evaluator
        self._out, self._mark, self._said, self._sofar = out, mark, said, sofar
        self.found: list[Evaluation] = []
        self.stopped = ""

    def start(self) -> None:
        """Evaluate the reference, or read what was evaluated up to the last checkpoint."""
        last = last_checkpoint(self._out / "checkpoints")
        done = int(last.rpartition("-")[2]) if last else -1
        for line in self._lines():
            if line["step"] <= done or line["step"] == 0:
                result = Evaluation(**line)
                text = self._answers(result.step).read_text(encoding="utf-8")
                answers = [json.loads(row)["response"] for row in text.splitlines()]
                self._evaluator.remember(result.step, answers)
                self._add(result)
        if self.found:
            self._sofar.go_on(json.loads(self._counts(self.found[-1].step).read_bytes()))
        else:
            self(0)
        check_readable(self.found[0], self._asked.base)

    def __call__(self, step: int) -> bool:
        """Evaluate the policy as it is; whether to stop."""
        result = self._evaluator(
            step, lambda done, of: self._said(f"step {step}: {done:,} of {of:,} answers")
        )
        answers = [[answer] for answer in self._evaluator.answers[step]]
        lines = answer_lines(self._evaluator.prompts, answers, self._mark)
        _write(self._answers(step), lines)
        with writing(self._theta(step)):
            save_file({"theta_D": self._base.theta()}, self._theta(step))
        _write(self._counts(step), json_lines([self._sofar.to_json()]))
        self._add(result)
        _write(self._out / "metrics.jsonl", json_lines(one.to_json() for one in self.found))
        self._said(self._told(result))
        return bool(self.stopped)

    def _add(self, found: Evaluation) -> None:
        self.found.append(found)
        if self._asked.kl_budget and found.kl > self._asked.kl_budget:
            self.stopped = BUDGET
        elif self._parted():
            self.stopped = PARTED

    def _parted(self) -> bool:
        """Return whether at the last two evaluations the proxy was above, and the truth below,
        where the truth was best."""
        if len(self.found) < 3 or self.found[0].truth is None:
            return False
        best = max(self.found[:-2], key=_truth)
        return all(
            one.proxy > best.proxy and self._evaluator.worse(one.step, best.step)
            for one in self.found[-2:]
        )

    def chosen(self) -> Evaluation:
        """The evaluation whose policy is saved."""
        if self.stopped == PARTED:
            return max(self.found, key=_truth)
        budget = self._asked.kl_budget or math.inf
        return [one for one in self.found if one.kl <= budget or not one.step][-1]

    def restore(self, step: int) -> None:
        """Put the policy of an evaluation back."""
        self._base.put(load_file(self._theta(step))["theta_D"])

    def _told(self, one: Evaluation) -> str:
        truth = "" if one.truth is None else f", true reward {one.truth:+.2f}"
        told = kl_is(self._asked.sampling)
        return f"step {one.step}: reward {one.proxy:+.2f}, {told} {one.kl:.2f}{truth}"

    def _lines(self) -> list[dict[str, Any]]:
        try:
            text = (self._out / "metrics.jsonl").read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        return [
            {name: math.nan if value is None and name == "kl_error" else value
             for name, value in json.loads(line).items()}
            for line in text.splitlines()
        ]  # fmt: skip

    def _answers(self, step: int) -> Path:
        return self._out / "answers" / f"step-{step:06d}.jsonl"

    def _counts(self, step: int) -> Path:
        return self._out / "checkpoints" / f"counts-{step:06d}.json"

    def _theta(self, step: int) -> Path:
        return self._out / "checkpoints" / f"theta-{step:06d}.safetensors"


def _truth(one: Evaluation) -> float:
    return -math.inf if one.truth is None else one.truth


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=2, allow_nan=False).encode() + b"\n"


def _write(file: Path, content: bytes) -> None:
    with writing(file):
        replace_file(file, content)
