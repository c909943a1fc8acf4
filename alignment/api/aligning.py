"""Alignment, as programs ask for it: from a private reward, or from judgements, to a policy."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from murmuration.alignment.api.aligned import AlignedRun
from murmuration.api.quiet import quiet_libraries
from murmuration.api.run import Run, model_folder
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.in_memory import Source

if TYPE_CHECKING:
    from murmuration.alignment.reinforce import Steps
    from murmuration.alignment.rewards import Guards
    from murmuration.alignment.supervised import Supervised
    from murmuration.preference.language.generation import Sampling
    from murmuration.sims.runtimes.tracking import Report


def align(
    reward: Run | str | os.PathLike[str] | None = None,
    *,
    base: str,
    prompts: str,
    out: str | os.PathLike[str],
    judgements: Source | None = None,
    epsilon: float | None = None,
    delta: float | str = 1e-5,
    features: str = "hashing",
    users: int = 0,
    chosen_from_data: bool = False,
    limit: int = 1000,
    prompts_public: bool = False,
    reward_privacy: str = "",
    base_privacy: str = "",
    truth_privacy: str = "",
    sft_privacy: str = "",
    truth: str | None = None,
    supervised: Supervised | None = None,
    steps: Steps | None = None,
    sampling: Sampling | None = None,
    guards: Guards | None = None,
    lora_rank: int = 16,
    lora_targets: str = "",
    lora_layers: str = "auto",
    max_tokens: int | None = None,
    system: str | None = None,
    evaluate_every: int = 10,
    evaluate_on: int = 50,
    kl_budget: float = 0.0,
    seed: int = 0,
    resume: bool = False,
    progress: bool = False,
    report_to: str | Report | None = None,
) -> Run:
    """Align a language model with a private reward, on public prompts: no further epsilon.

    A policy that is trained on a reward can game it: watch the true reward, which needs ``truth``.

        >>> from murmuration import Guards, Sampling, Steps, align
        >>> run = align(
        ...     "runs/reward/model",
        ...     base="tiny",
        ...     prompts="population:seen",
        ...     out="runs/policy",
        ...     limit=40,
        ...     steps=Steps(steps=2, batch=8),
        ...     sampling=Sampling(max_new_tokens=5),
        ...     guards=Guards(length="none"),
        ...     truth="none",
        ...     lora_targets="all-linear",
        ...     evaluate_every=1,
        ...     evaluate_on=8,
        ... )
        >>> run.promise.private
        True

    Args:
        reward: A run, or a reward model's folder, as ``run.path / "model"``.
        base: The policy to start from, which is the reference: a folder or hub name.
        prompts: Public prompts: a file (or other source) with ``prompt`` in each row, or
            ``population:seen`` or ``population:unseen``.
        out: Folder for the policy, its report and its card.
        judgements: Instead of ``reward``: train one first on this data (or ``"population"``), into
            the folder OUT-reward, by ``uls`` over 200 rounds.
        epsilon: Epsilon of that reward.
        delta: Delta of that reward.
        features: Its features, as of ``train``: ``"smollm2"`` for a real language model's states.
        users: Nominal, round, public number of users that it is trained on, from which the cohort
            follows; 0: as many as there are, exactly, which the reward's promise then says.
        chosen_from_data: Whether these were chosen by looking at that data, which the reward's
            promise then says.
        limit: Most prompts to use.
        prompts_public: Declare that prompts, also those of ``supervised``, that users saw, too,
            were public before.
        reward_privacy: Privacy cost of a reward whose folder does not record it: ``public``, or
            ledgers, comma-separated.
        base_privacy: As ``reward_privacy``, for ``base``.
        truth_privacy: As ``reward_privacy``, for a ``truth`` that is a model's folder.
        sft_privacy: As ``reward_privacy``, for demonstrations that models of private runs wrote.
        truth: A true reward to compare with: ``population``, another reward model's folder, or
            ``none``; by default population, of its own prompts.
        supervised: Public demonstrations to learn first, and how.
        steps: How it is trained.
        sampling: How it writes.
        guards: What keeps it from gaming the reward.
        lora_rank: Rank of LoRA.
        lora_targets: Layers that LoRA changes, comma-separated, or ``all-linear``.
        lora_layers: Which of the base's layers it changes: ``all``, ``last:4``, ``9-12``, or
            ``auto``: the last 8, or all where there are no more. What is below the first is
            computed once for each answer.
        max_tokens: Most tokens of prompt and answer; by default as in ``train``.
        system: The system prompt of prompts that have none of their own; by default the one that
            ``base`` was trained with. ``""``: as its chat template does by itself. The reward reads
            them with its own.
        evaluate_every: Steps between evaluations.
        evaluate_on: Prompts held out for evaluation.
        kl_budget: KL divergence, in nats, at which training ends; 0: no limit.
        seed: Seed of prompts' order and answers; never of a reward's noise or cohorts.
        resume: Continue in ``out``.
        progress: Whether to show what is being done.
        report_to: As in ``train``, of steps.

    Returns:
        The finished run, whose ``model`` is the policy, and whose ``promise`` is that of all runs
        that it was made from.

    Raises:
        InputError: what cannot be used, and why; or nothing was learnt.
    """
    quiet_libraries()
    from murmuration.alignment.align import Alignment
    from murmuration.alignment.align import align as align_on
    from murmuration.alignment.evaluation import POPULATION
    from murmuration.alignment.public_prompts import public_prompts, refuse_private_of
    from murmuration.alignment.reinforce import Steps
    from murmuration.alignment.rewards import Guards
    from murmuration.alignment.supervised import Rows, Supervised
    from murmuration.preference.language.generation import PublicSeed, Sampling
    from murmuration.preference.language.reward import system_of
    from murmuration.server.record.lineage import lineage_of_saved
    from murmuration.server.record.marks import lineage_of_rows
    from murmuration.sims.runtimes.tracking import tracked
    from murmuration.terminal.status import status

    if (reward is None) == (judgements is None):
        raise InputError("give --reward, a model's folder, or --reward-data to train one first")
    folder, source = Path(out).expanduser(), (supervised or Supervised()).source
    with (
        status(progress, "", lasting=_is_evaluation) as say,
        # Before a reward is trained.
        tracked(folder, report_to, step="step"),
    ):
        if judgements is not None:
            how = {
                "epsilon": epsilon,
                "delta": delta,
                "features": features,
                "users": users or None,
                "chosen_from_data": chosen_from_data,
            }
            reward = _trained_reward(judgements, how, folder, resume, say)
        assert reward is not None
        model = Path(model_folder(reward))
        models = [model, base]
        of_base = lineage_of_saved("--base", base, "--base-privacy", base_privacy, may_be_base=True)
        if source:
            of_rows = lineage_of_rows("--sft", source, "--sft-privacy", sft_privacy)
            of_base |= of_rows if of_rows.runs else of_rows.declared_public()
        elif sft_privacy:
            raise InputError("--sft-privacy is for rows of --sft")
        promise = of_base | lineage_of_saved(
            "--reward", str(model), "--reward-privacy", reward_privacy
        )
        true = _truth(truth, prompts)
        if true not in ("", POPULATION):  # it has a say in when training ends and what is saved
            models.append(true)
            promise |= lineage_of_saved("--truth", true, "--truth-privacy", truth_privacy)
        elif truth_privacy:
            raise InputError("--truth-privacy is for a --truth that is a model's folder")
        alignment = Alignment(
            reward=str(model.expanduser().absolute()),
            base=base,
            prompts=prompts,
            truth=true,
            supervised=supervised or Supervised(),
            steps=steps or Steps(),
            sampling=sampling or Sampling(),
            guards=guards or Guards(),
            lora_rank=lora_rank,
            lora_targets=lora_targets,
            lora_layers=lora_layers,
            system=system_of(base) if system is None else system,
            evaluate_every=evaluate_every,
            evaluate_on=evaluate_on,
            kl_budget=kl_budget,
            seed=PublicSeed(seed),
        )
        if max_tokens is not None:
            alignment = replace(alignment, max_tokens=max_tokens)
        texts = public_prompts(prompts, limit, seed, models, declared_public=prompts_public)
        rows: Rows = ()
        if source:
            rows = alignment.supervised.rows()
            refuse_private_of(
                [prompt for prompt, _ in rows], source, models, prompts_public, option="--sft"
            )
        result = align_on(
            alignment,
            texts,
            folder,
            promise,
            demonstrations=rows,
            base_promise=of_base,
            resume=resume and (judgements is None or folder.exists()),  # or it ended before
            on_status=say,
        )
    return AlignedRun(folder, result)


def _is_evaluation(text: str) -> bool:
    return text.startswith("step ") and "reward" in text


def _truth(given: str | None, prompts: str) -> str:
    from murmuration.alignment.evaluation import POPULATION

    if not given:
        return POPULATION if prompts.startswith("population:") else ""
    if given in ("none", POPULATION):
        return given.replace("none", "")
    return str(Path(given).expanduser().absolute())


def _trained_reward(
    judgements: Source,
    how: Mapping[str, Any],
    out: Path,
    resume: bool,
    say: Callable[[str], None],
) -> Path:
    """Train a private reward in a folder beside OUT, without a seed, so that sampling and noise are
    secret; or take the one that is there if its settings are equal. ``how`` are settings of its
    run.
    """
    from murmuration.api.training import train

    if how["epsilon"] is None:
        raise InputError("--reward-data needs --epsilon: what the reward may cost a user")
    run = out.with_name(out.name + "-reward")
    finished = (run / "result.json").exists()  # and is refused if it had other settings
    say(f"training a reward at epsilon {how['epsilon']:g} into {run}")
    train(
        data=None if isinstance(judgements, str) and judgements == "population" else judgements,
        strategy="uls",
        rounds=200,
        **how,
        out=run,
        resume=finished or (resume and run.exists()),
    )
    return run / "model"
