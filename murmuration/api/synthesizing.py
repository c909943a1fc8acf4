"""Data sets of a private reward's preferences, as programs ask for them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from murmuration.api.quiet import quiet_libraries
from murmuration.api.run import Run, model_folder
from murmuration.preference.data.rows import InputError

if TYPE_CHECKING:
    from murmuration.preference.language.generation import Sampling
    from murmuration.privacy.promise import Promise


@dataclass(frozen=True)
class SyntheticPreferences:
    """A data set of preferences that a private reward has.

    Attributes:
        path: its folder, for any trainer.
        pairs: how many there are.
        left_out: how many prompts have none, by why.
        promise: what may be claimed of it, and of all that is made from it.
        cut_off: what is said of answers that broke off; nothing where none did.
    """

    path: Path
    pairs: int
    left_out: Mapping[str, int]
    promise: Promise
    cut_off: str = ""


def synthesize(
    reward: Run | str | os.PathLike[str],
    *,
    policy: str,
    prompts: str,
    out: str | os.PathLike[str],
    limit: int | None = None,
    samples: int = 4,
    pairs: Literal["best-worst", "all", "random"] | str = "best-worst",
    labels: Literal["hard", "sampled"] | str = "hard",
    sampling: Sampling | None = None,
    seed: int = 0,
    writer: str = "",
    system: str | None = None,
    reward_privacy: str = "",
    policy_privacy: str = "",
    prompts_public: bool = False,
    progress: bool = False,
) -> SyntheticPreferences:
    """Let a policy answer public prompts, and a private reward say which answers are better.

    That is post-processing of the reward, at no further epsilon. Nobody's data are read.

        >>> from murmuration import Sampling, synthesize
        >>> preferences = synthesize(
        ...     "runs/reward/model",
        ...     policy="tiny",
        ...     prompts="population:seen",
        ...     limit=3,
        ...     samples=2,
        ...     sampling=Sampling(max_new_tokens=8),
        ...     out="preferences",
        ... )
        >>> preferences.promise.private
        True

    Args:
        reward: A run, or a saved reward model, as ``run.path / "model"``.
        policy: The model that writes answers: a folder, or a base; with ``writer`` the name of one
            of its models.
        prompts: A file (or other source, as data of a run) with ``prompt`` in each row, or
            ``population:seen`` or ``population:unseen`` for fresh ones of the embedded population,
            or ``murmuration.questions`` for 300 debatable ones.
        out: The folder to write.
        limit: How many prompts, from the first; by default all, 2000 of the population.
        samples: Answers to each prompt.
        pairs: Of a prompt's answers: best and worst, all pairs, or one at random.
        labels: hard: the higher score is chosen. sampled: by the odds that the reward gives.
        sampling: How answers are drawn.
        seed: Seed of the population's prompts and of all draws.
        writer: The address, up to /v1, of an OpenAI-compatible server that writes: prompts are sent
            there. Its key, if it needs one, is in MURMURATION_WRITER_KEY.
        system: The system prompt of prompts that have none of their own; by default the one that
            a model was trained with. ``""``: as its chat template does by itself.
        reward_privacy: Privacy cost of the reward, where its folder does not record it: ``public``,
            or the ledgers of its runs, comma-separated.
        policy_privacy: As ``reward_privacy``, for the policy; with ``writer`` it must be said.
        prompts_public: Declare that the prompts were public before any user saw them.
        progress: Whether to show how far it is.

    Returns:
        What was written, with a card that says what users were promised.

    Raises:
        InputError: what cannot be used, and why.
    """
    quiet_libraries()
    from murmuration.alignment.data_set import Made, save
    from murmuration.alignment.pool import cut_off_text, draw, load_reward, writer_of
    from murmuration.alignment.public_prompts import public_prompts
    from murmuration.alignment.synthesis import Synthesis, preferences
    from murmuration.preference.data.sources import is_hub_name
    from murmuration.preference.language.checkpoint import digest_of, origin_below
    from murmuration.preference.language.generation import PublicSeed, Sampling
    from murmuration.preference.language.loading import contents_of, resolve_base
    from murmuration.reporting.card_head import made_from
    from murmuration.reporting.live.status import status
    from murmuration.server.lineage import lineage_of_saved
    from murmuration.sims.population.prompts import PREFIX, QUESTIONS

    sampling, folder = sampling or Sampling(), Path(out)
    if folder.exists() or folder.is_symlink():
        raise InputError(f"--out {folder} is there already; choose another folder")
    model = Path(model_folder(reward)).expanduser()
    judge = load_reward("--reward", model)
    promise = lineage_of_saved("--reward", str(model), "--reward-privacy", reward_privacy)
    promise |= lineage_of_saved(
        *("--generator", policy, "--generator-privacy", policy_privacy),
        may_be_base=True,
        served=bool(writer),
    )
    asked = public_prompts(
        prompts, limit, seed, models=(model, policy), declared_public=prompts_public
    )
    how = Synthesis(pairs, labels, PublicSeed(seed), judge.model)
    with status(progress) as say:

        def count(done: int, of: int) -> None:
            say(f"{done:,} of {of:,} answers" if done < of else "scoring")

        model_writer = writer_of(policy, writer, system)
        rows = preferences(draw(model_writer, judge, asked, samples, sampling, seed, count), how)
        path = (policy if is_hub_name(policy) else "") if writer else resolve_base(policy)
        given = {"pairs": pairs, "labels": labels, "temperature": sampling.temperature}
        given |= {"top-p": sampling.top_p, "max-new-tokens": sampling.max_new_tokens, "seed": seed}
        given |= {} if system is None else {"system": system}
        source = f"questions of {QUESTIONS}" if prompts == QUESTIONS else "public prompts"
        named = f"fresh prompts of the embedded population ({prompts})"
        made = Made(
            reward=digest_of(model),
            policy="" if writer else contents_of(path).digest,
            policy_name="" if path and Path(path).is_dir() else path,
            made_from=made_from(origin_below(path) if path and not writer else {}),
            source=named if prompts.startswith(PREFIX) else source,
            prompts=len(asked),
            samples=samples,
            settings=given,
        )
        save(folder, rows, made, promise)
    cut_off = cut_off_text(model_writer.cut_off, samples * len(asked), sampling)
    return SyntheticPreferences(folder, len(rows.rows), dict(rows.left_out), promise, cut_off)
