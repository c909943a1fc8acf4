"""Files of an alignment or a comparison, and one line of an error if they cannot be written.

Legend: T prompts, N answers to each.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from safetensors import SafetensorError

from murmuration.preference.data.errors import InputError
from murmuration.privacy.strict_json import json_lines


@contextmanager
def writing(place: Path | str) -> Iterator[None]:
    """Raise InputError where what is written within cannot be, on a full disk say."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:  # torch's is a RuntimeError
        why = str(getattr(error, "strerror", None) or error).strip().partition("\n")[0]
        raise InputError(f"{place} cannot be written: {why}") from None


def read_lines(file: Path) -> list[dict[str, Any]]:
    """The rows of a file of `json_lines`.

    A line ends at a line feed alone: a text may have other characters that end lines elsewhere.
    """
    with file.open(encoding="utf-8", newline="\n") as lines:
        return [json.loads(line) for line in lines]


def answer_lines(
    prompts: Sequence[str],
    answers_TN: Sequence[Sequence[str]],
    mark: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    """Answers as lines of a file that `comparisons.comparison.read_answers` reads.

    Args:
        prompts: public ones.
        answers_TN: to each prompt as many as there are.
        mark: entries of each line about the runs behind the model.
    """
    return json_lines(
        {"prompt": prompt, "response": answer, **mark}
        for prompt, answers in zip(prompts, answers_TN, strict=True)
        for answer in answers
    )
