"""Comparisons of models' answers, as programs ask for them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from murmuration.api.quiet import quiet_libraries
from murmuration.preference.data.errors import InputError
from murmuration.privacy.strict_json import strict_json

if TYPE_CHECKING:
    from murmuration.alignment.comparisons.comparison import Comparison, Side
    from murmuration.preference.language.generation import Sampling

RESULT, PAGE, VERDICTS, ANSWERS = "result.json", "page.html", "verdicts.jsonl", "answers"


def winrate(
    models: str | Sequence[str],
    *,
    against: str,
    prompts: str = "",
    limit: int | None = None,
    judge: str = "population",
    judge_model: str = "",
    out: str | os.PathLike[str] | None = None,
    samples: int = 1,
    kl: bool = True,
    sampling: Sampling | None = None,
    seed: int = 0,
    writer: str = "",
    system: str | None = None,
    progress: bool = False,
) -> Comparison:
    """Compare models' answers with another's: how often each wins, by a judge.

    An answer that the embedded population's truth cannot read loses.

        >>> from murmuration import Sampling, winrate
        >>> comparison = winrate(
        ...     "tiny", against="tiny", limit=4, kl=False, sampling=Sampling(max_new_tokens=4)
        ... )
        >>> comparison.result["prompts"]["count"]
        4

    Args:
        models: Model folders, as ``run.path / "model"``, bases, or ``.jsonl`` files of answers.
        against: The model that they are compared with: likewise a folder, base or file.
        prompts: A file (or other source, as data of a run) with ``prompt`` in each row, or
            ``population:seen`` or ``population:unseen`` for fresh ones of the embedded population,
            or ``murmuration.questions`` for 300 debatable ones;
            by default those of a file of answers, else the first of these.
        limit: The number of prompts, from the first; by default all, 2000 of the population.
        judge: ``population`` for the embedded population's truth, the folder of a reward model, or
            an OpenAI-compatible address up to /v1, whose key, if it needs one, is in
            MURMURATION_JUDGE_KEY.
        judge_model: Which model judges, behind an address.
        out: Folder for result, answers, verdicts and a page; an earlier comparison's, or new.
        samples: Answers to each prompt.
        kl: Whether to estimate each model's KL divergence from the other.
        sampling: How answers are drawn.
        seed: Seed of prompts, answers and intervals.
        writer: The address, up to /v1, of an OpenAI-compatible server that writes the answers of
            all models (files excepted), which are then named as there: prompts are sent to it. Its
            key, if it needs one, is in MURMURATION_WRITER_KEY.
        system: The system prompt of prompts that have none of their own; by default the one that
            a model was trained with. ``""``: as its chat template does by itself.
        progress: Whether to show progress.

    Returns:
        The answers, the wins, and ``result``: the output of ``murmuration winrate --json``.

    Raises:
        InputError: an input that cannot be used; the message has the reason.
    """
    quiet_libraries()
    from murmuration.alignment.comparisons.comparison import (
        ComparisonRequest,
        compare,
        is_answers,
        prompts_in,
        write_sides,
    )
    from murmuration.alignment.judges import judge_of
    from murmuration.preference.language.generation import PublicSeed, Sampling
    from murmuration.sims.population.prompts import NAMES, prompts_of
    from murmuration.terminal.status import status

    compared = [models] if isinstance(models, str) else list(models)
    folder = Path(out) if out else None
    if folder:
        _check_ours(folder)
    with status(progress) as say:
        judging = judge_of(
            judge,
            model=judge_model,
            kept=folder / VERDICTS if folder else None,
            progress=lambda done, total: say(f"{done:,} of {total:,} verdicts"),
        )
        files = [path for path in (against, *compared) if is_answers(path)]
        if files and not prompts:
            source, asked_prompts = files[0], prompts_in(files[0], limit)
        else:
            source = prompts or NAMES[0]
            asked_prompts = prompts_of(source, limit, seed)
        request = ComparisonRequest(
            models=compared,
            against=against,
            prompts=asked_prompts,
            source=source,
            samples=samples,
            sampling=sampling or Sampling(),
            kl=kl,
            seed=PublicSeed(seed),
            writer=writer,
            system=system,
        )
        sides, other = write_sides(request, say, _answer_writer(folder, request.prompts, writer))
        say("judging")
        comparison = compare(request, sides, other, judging)
    if folder:
        _write(folder, comparison)
    return comparison


def _check_ours(out: Path) -> None:
    """InputError for a folder that holds anything but an earlier comparison."""
    if not out.exists():
        return
    others = (
        sorted({path.name for path in out.iterdir()} - {RESULT, PAGE, VERDICTS, ANSWERS})
        if out.is_dir()
        else [out.name]
    )
    if others:
        raise InputError(
            f"--out {out} is there already, and holds {others[0]}: choose another folder, or one "
            "of an earlier comparison"
        )


def _answer_writer(
    out: Path | None, prompts: Sequence[str], server: str
) -> Callable[[int, Side], None]:
    """A function that writes answers into a folder at once, replacing earlier ones."""

    from murmuration.alignment.comparisons.comparison import mark_told
    from murmuration.alignment.writing import answer_lines, writing
    from murmuration.privacy.durable_files import replace_file

    def write_answers(place: int, side: Side) -> None:
        if not out:
            return
        with writing(f"--out {out}"):
            if not place:  # what an earlier comparison found is about other answers
                for name in (RESULT, PAGE):
                    (out / name).unlink(missing_ok=True)
                shutil.rmtree(out / ANSWERS, ignore_errors=True)
            (out / ANSWERS).mkdir(parents=True, exist_ok=True)
            lines = answer_lines(prompts, side.answers_TN, mark_told(side.model, server))
            replace_file(out / ANSWERS / f"{place or 'against'}.jsonl", lines)

    return write_answers


def _write(out: Path, comparison: Comparison) -> None:
    from murmuration.alignment.comparisons.page import page
    from murmuration.alignment.writing import writing
    from murmuration.privacy.durable_files import replace_file

    with writing(f"--out {out}"):
        replace_file(out / PAGE, page(comparison).encode())
        replace_file(out / RESULT, strict_json(comparison.result, indent=2).encode() + b"\n")
