"""Scores of a saved model, as programs ask for them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from murmuration.api.quiet import quiet_libraries
from murmuration.api.run import Run, model_folder
from murmuration.preference.data.errors import InputError, disk_errors_as
from murmuration.privacy.strict_json import strict_json

if TYPE_CHECKING:
    import numpy as np

#: Rows that are read at a time, and texts that are scored: models make smaller batches of them.
_ROWS, _TEXTS = 1024, 256


@dataclass
class Scored:
    """The amount of a file that was scored.

    Attributes:
        rows: the number of rows; ``texts`` the number of their texts.
        pairs: rows of a chosen and a rejected text.
        right: pairs whose chosen text scores higher; ties count half.
        seconds: since the start.
    """

    rows: int = 0
    texts: int = 0
    pairs: int = 0
    right: float = 0.0
    seconds: float = 0.0


def score(
    model: Run | str | os.PathLike[str],
    prompt: str | Sequence[str],
    response: str | Sequence[str],
    *,
    base: str = "",
    system: str | None = None,
) -> np.ndarray:
    """Score responses to prompts: higher is better.

    Only differences mean anything. A model of task text, sft or policy gives the response's
    log-likelihood in nats instead.

        >>> from murmuration import score
        >>> careful, daring = score(
        ...     "runs/reward/model", "Spend or save?", ["Put it aside.", "Treat yourself!"]
        ... )
        >>> bool(-10 < careful - daring < 10)
        True

    Args:
        model: A run, or a model's folder, as ``run.path / "model"``.
        prompt: The prompt, or one for each response.
        response: The response, or several.
        base: The base or encoder that the model was made on, where it is not found by itself.
        system: The system prompt, of a model that gives log-likelihoods; by default the one that it
            was trained with.

    Returns:
        One score for each response.

    Raises:
        InputError: the model cannot be loaded, there are not as many prompts as responses, or one
            of them is no text.
    """
    from murmuration.preference.scoring import is_one

    responses = [response] if is_one(response) else list(response)
    prompts = [prompt] * len(responses) if is_one(prompt) else list(prompt)
    if len(prompts) != len(responses):
        raise InputError(f"{len(prompts)} prompts and {len(responses)} responses: give one each")
    return _scorer(model, base, system).score_batch(prompts, responses)


def ignores_prompt(model: Run | str | os.PathLike[str]) -> bool:
    """True if a saved model's scores do not depend on the prompt, as with hashed words."""
    path = Path(model_folder(model)).expanduser() / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    features = config.get("features")
    return isinstance(features, dict) and features.get("kind") == "hashing"


def score_rows(
    model: Run | str | os.PathLike[str],
    data: str,
    out: str | os.PathLike[str],
    *,
    base: str = "",
    system: str | None = None,
    on_progress: Callable[[Scored], None] = lambda scored: None,
) -> Scored:
    """Write rows with a score of each of their texts, in order; the file is written whole or not at
    all.

    Args:
        model: As of ``score``.
        data: Rows of prompt and response, or of prompt, chosen and rejected: a file, folder or data
            set, as of ``train``.
        out: The file, of JSON lines.
        base, system: As of ``score``.
        on_progress: Is called with the amount so far.

    Returns:
        The amount scored.

    Raises:
        InputError: rows that have no such texts, or ``out`` exists.
    """
    from murmuration.privacy.durable_files import replace_file

    path = Path(out)
    if path.exists():
        raise InputError(f"--out {path}: is there already; choose another name")
    scorer = _scorer(model, base, system)
    scored = Scored()
    lines = _scored_lines(scorer, data, scored, on_progress)
    with disk_errors_as(f"--out {path}: cannot be written"):
        replace_file(path, (memoryview(line.encode()) for line in lines))
    return scored


def _scorer(model: Run | str | os.PathLike[str], base: str, system: str | None) -> Any:
    quiet_libraries()
    from murmuration.preference.language.likelihood import load_scorer

    return load_scorer(model_folder(model), base, system)


def _scored_lines(
    scorer: Any, data: str, scored: Scored, on_progress: Callable[[Scored], None]
) -> Iterator[str]:
    from murmuration.preference.data.loading import load_scorable

    rows, started = load_scorable(data), time.perf_counter()
    while part := list(islice(rows, _ROWS)):
        texts = [(prompt, text) for prompt, named in part for text in named.values()]
        values: list[float] = []
        for at in range(0, len(texts), _TEXTS):
            prompts, responses = zip(*texts[at : at + _TEXTS], strict=True)
            values += scorer.score_batch(prompts, responses).tolist()
            scored.texts += len(prompts)
            scored.seconds = time.perf_counter() - started
            on_progress(scored)
        scores = iter(values)
        for prompt, named in part:
            row: dict[str, Any] = {"prompt": prompt, **named}
            by_name = {name: next(scores) for name in named}
            if "chosen" in by_name:
                row |= {f"score_{name}": value for name, value in by_name.items()}
                scored.pairs += 1
                margin = by_name["chosen"] - by_name["rejected"]
                scored.right += 1.0 if margin > 0 else 0.5 if margin == 0 else 0.0
            else:
                row["score"] = by_name["response"]
            scored.rows += 1
            yield strict_json(row, ensure_ascii=False) + "\n"
