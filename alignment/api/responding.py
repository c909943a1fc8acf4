"""Responses of a language model to many prompts, as programs ask for them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from murmuration.api.quiet import quiet_libraries
from murmuration.api.run import Run, model_folder
from murmuration.preference.data.errors import InputError

if TYPE_CHECKING:
    from murmuration.preference.language.generation import Sampling
    from murmuration.privacy.promise import Promise


@dataclass(frozen=True, kw_only=True)
class Responses:
    """A file of responses. As text it is what ``murmuration respond`` prints.

    Attributes:
        path: the file: ``prompt`` and ``response`` in each row, and of best of n the ``reward``.
        prompts: the number of prompts.
        samples: the number of responses drawn for each.
        promise: of best of n, the privacy guarantee; None without a reward.
        mean_reward: of best of n, the mean reward of those that were chosen.
        mean_reward_drawn: the mean reward of all that were drawn.
        cut_off: a note about truncated responses; empty if there are none.
    """

    path: Path
    prompts: int
    samples: int
    promise: Promise | None = None
    mean_reward: float | None = None
    mean_reward_drawn: float | None = None
    cut_off: str = ""

    def __str__(self) -> str:
        from murmuration.alignment.best_of_n import kl_bound
        from murmuration.privacy.figures import counted
        from murmuration.reporting.promise import paragraphs

        if self.promise is None:
            wrote = f"wrote {counted(self.samples * self.prompts, 'response')} to {self.path}"
            return f"{wrote}; {self.cut_off}" if self.cut_off else wrote
        lines = [
            f"wrote the best of {self.samples} responses to each of {self.prompts:,} prompts to "
            f"{self.path}",
            f"mean reward {self.mean_reward:.3f}; of all responses {self.mean_reward_drawn:.3f}",
            f"KL from the model at most ln n - (n - 1)/n = {kl_bound(self.samples):.3f} nats a "
            "prompt, an upper bound (Beirami et al. 2024)",
            *(line.replace("**", "") for line in paragraphs(self.promise)),
            "post-processing of a saved reward: no user's data were read for it",
            *([self.cut_off] if self.cut_off else []),
        ]
        return "\n".join(lines)


def respond(
    model: Run | str | os.PathLike[str],
    prompts: str,
    *,
    out: str | os.PathLike[str],
    limit: int | None = None,
    samples: int = 1,
    sampling: Sampling | None = None,
    seed: int = 0,
    writer: str = "",
    system: str | None = None,
    reward: Run | str | os.PathLike[str] | None = None,
    best_of: int | None = None,
    reward_privacy: str = "",
    model_privacy: str = "",
    prompts_public: bool = False,
    progress: bool = False,
) -> Responses:
    """Write responses to prompts with a causal language model.

        >>> from murmuration import Sampling, respond
        >>> responses = respond(
        ...     "tiny",
        ...     "population:seen",
        ...     limit=3,
        ...     out="responses.jsonl",
        ...     sampling=Sampling(max_new_tokens=4),
        ... )
        >>> print(responses)
        wrote 3 responses to responses.jsonl; 3 of 3 answers were cut off at 4 tokens

    Args:
        model: A run, a model's folder, as ``run.path / "model"``, or a base; with ``writer`` the
            name of one of its models.
        prompts: A file (or other source, as data of a run) with ``prompt`` in each row, or
            ``population:seen`` or ``population:unseen`` for fresh ones of the embedded population,
            or ``murmuration.questions`` for 300 debatable ones.
        out: The ``.jsonl`` file to write.
        limit: The number of prompts, from the first; by default all, 2000 of the population.
        samples: Responses to each prompt.
        sampling: How they are drawn.
        seed: Seed of the population's prompts and of all draws.
        writer: The address, up to /v1, of an OpenAI-compatible server that writes: prompts are sent
            there. Its key, if it needs one, is in MURMURATION_WRITER_KEY.
        system: The system prompt of prompts that have none of their own; by default the one that
            a model was trained with. ``""``: as its chat template does by itself.
        reward: A saved reward model: of ``best_of`` responses to each prompt only the one with the
            highest reward is written.
        best_of: With ``reward``: number of responses to choose from.
        reward_privacy: Privacy cost of the reward, where its folder does not record it: ``public``,
            or the ledgers of its runs, comma-separated.
        model_privacy: As ``reward_privacy``, for the model; required with ``writer`` and
            ``reward``.
        prompts_public: With ``reward``: declare that the prompts were public before any user saw
            them.
        progress: Whether to show progress.

    Returns:
        The file of responses.

    Raises:
        InputError: an input that cannot be used; the message has the reason.
    """
    quiet_libraries()
    from murmuration.alignment.best_of_n import best
    from murmuration.alignment.pool import (
        Pool,
        cut_off_text,
        load_reward,
        rewards,
        seeds_of,
        write_samples,
        writer_of,
    )
    from murmuration.alignment.public_prompts import public_prompts
    from murmuration.preference.language.generation import Sampling
    from murmuration.server.record.lineage import lineage_of_saved
    from murmuration.server.record.marks import mark_of, mark_of_model, mark_of_served
    from murmuration.sims.population.prompts import prompts_of
    from murmuration.terminal.status import status

    writer_folder, path = model_folder(model), Path(out)
    if path.exists():
        raise InputError(f"--out {path} is there already; choose another file")
    if (reward is None) != (best_of is None):
        raise InputError("--reward and --best-of need each other: what chooses, and from how many")
    if best_of and samples > 1:
        raise InputError(
            "--best-of writes one response to each prompt: leave out --num-generations"
        )
    judge = promise = None
    if reward is None:
        texts = prompts_of(prompts, limit, seed)
        mark = (
            mark_of_served("MODEL", writer_folder, "--model-privacy", model_privacy)
            if writer
            else mark_of_model(writer_folder)
        )
    else:
        reward_folder = Path(model_folder(reward)).expanduser()
        judge = load_reward(reward_folder)
        promise = lineage_of_saved(
            "--reward", str(reward_folder), "--reward-privacy", reward_privacy
        )
        promise |= lineage_of_saved(
            *("MODEL", writer_folder, "--model-privacy", model_privacy),
            may_be_base=True,
            served=bool(writer),
        )
        models = (str(reward_folder), writer_folder)
        texts = public_prompts(prompts, limit, seed, models, declared_public=prompts_public)
        mark = mark_of(promise)
    drawn, how = best_of or samples, sampling or Sampling()
    if (best_of or 1) > 1 and how.temperature == 0:
        raise InputError(
            "--best-of chooses among different responses, and at --temperature 0 all are the same"
        )
    model_writer = writer_of(writer_folder, writer, system)
    with status(progress) as say:
        answers = write_samples(
            model_writer,
            texts,
            how,
            seeds_of(seed, drawn),
            lambda done, total: say(f"{done:,} of {total:,} responses"),
        )
        cut_off = cut_off_text(model_writer.cut_off, drawn * len(texts), how)
        if judge is None or promise is None:
            pairs = zip(texts, answers, strict=True)
            rows = [{"prompt": text, "response": one} for text, many in pairs for one in many]
            _write(path, rows, mark)
            return Responses(path=path, prompts=len(texts), samples=drawn, cut_off=cut_off)
        if all(len(set(many)) == 1 < drawn for many in answers):
            raise InputError(
                f"all {drawn} responses to each prompt are the same text, so there was nothing to "
                "choose: take a higher --temperature; a server may be set up to ignore it"
            )
        say("scoring")
        pool = Pool(texts, answers, rewards(judge, texts, answers))
    rows = [
        {
            "prompt": text,
            "response": answers[place][at],
            "reward": float(pool.rewards_PN[place, at]),
        }
        for place, (text, at) in enumerate(zip(texts, best(pool), strict=True))
    ]
    _write(path, rows, mark)
    best_P = pool.rewards_PN.max(1)
    return Responses(
        path=path,
        prompts=len(texts),
        samples=drawn,
        promise=promise,
        mean_reward=float(best_P.mean()),
        mean_reward_drawn=float(pool.rewards_PN.mean()),
        cut_off=cut_off,
    )


def _write(path: Path, rows: Sequence[Mapping[str, object]], mark: Mapping[str, str]) -> None:
    from murmuration.alignment.writing import writing
    from murmuration.privacy.durable_files import replace_file
    from murmuration.privacy.strict_json import json_lines

    with writing(f"--out {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json_lines({**row, **mark} for row in rows))
