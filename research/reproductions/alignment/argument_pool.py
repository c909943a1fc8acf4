"""Arguments that a base writes once about public questions, kept in a folder as they come.

``answers-00.jsonl`` has an answer to each prompt, ``answers-01.jsonl`` another one, and so on. An
interrupted pool goes on with the file that it lacks: the k-th answer to a prompt depends on the
base, the prompts and k alone, except for roundings of the last digit.

Legend: P prompts, N answers to each.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from murmuration.preference.base_names import resolve_base
from murmuration.preference.data.errors import InputError
from murmuration.preference.language.generation import Sampling, Writer, read_responses
from murmuration.preference.language.likelihood import load_next_token
from murmuration.preference.language.loading import contents_of
from murmuration.research.reproductions.entry import tracked
from murmuration.sims.population.prompts import questions

#: What follows a question, so that a small model argues and does not weigh.
REQUEST = "Take a side and convince me, in two or three sentences."
SAMPLING = Sampling(temperature=0.7, max_new_tokens=80)
SETTINGS = "pool.json"


@dataclass(frozen=True)
class Answer:
    """A response to a prompt, and whether it broke off at the most tokens."""

    prompt: str
    response: str
    cut_off: bool


def requests(count: int) -> list[str]:
    """The first ``count`` public questions, each with the request for an argument."""
    return [f"{question} {REQUEST}" for question in questions()[:count]]


def written(
    folder: Path, base: str, prompts: Sequence[str], samples: int, sampling: Sampling = SAMPLING
) -> list[list[Answer]]:
    """The ``samples`` answers to each of P prompts, (P, N); those that are missing are generated.

    Raises:
        InputError: the base cannot be loaded, or the folder has answers of other settings.
    """
    path = resolve_base(base)
    settings = {"base": contents_of(path).digest, "prompts": list(prompts), **asdict(sampling)}
    _claim(folder, settings)
    missing = [sample for sample in range(samples) if not _file(folder, sample).exists()]
    if missing:
        network, texts = load_next_token(path)
        writer, openings = Writer(network, texts), texts.openings(prompts, sampling.max_new_tokens)
        for sample in tracked(missing, "answers", len(missing)):
            tokens = writer.continue_tokens(openings, sampling, (0, sample), ended=True)
            rows = []
            for prompt, ids in zip(prompts, tokens, strict=True):
                (response,), cut_off = read_responses(texts, [ids])
                rows.append(asdict(Answer(prompt, response, bool(cut_off))))
            _write(_file(folder, sample), rows)
    return [list(row) for row in zip(*(_read(folder, k) for k in range(samples)), strict=True)]


def _claim(folder: Path, settings: dict[str, object]) -> None:
    """Write down what a pool is of, or check that it is of this."""
    folder.mkdir(parents=True, exist_ok=True)
    noted = folder / SETTINGS
    if not noted.exists():
        noted.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    elif json.loads(noted.read_text(encoding="utf-8")) != settings:
        raise InputError(f"{folder} has answers of another base or to other prompts; remove it")


def _file(folder: Path, sample: int) -> Path:
    return folder / f"answers-{sample:02}.jsonl"


def _write(path: Path, rows: Sequence[dict[str, object]]) -> None:
    """Write all rows or none: an existing file is complete."""
    partial = path.with_suffix(".partial")
    lines = (json.dumps(row) + "\n" for row in rows)
    partial.write_text("".join(lines), encoding="utf-8")
    partial.replace(path)


def _read(folder: Path, sample: int) -> list[Answer]:
    with _file(folder, sample).open(encoding="utf-8") as lines:
        return [Answer(**json.loads(line)) for line in lines]
