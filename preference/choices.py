"""Names of tasks, features and losses; light to import."""

import re
from dataclasses import dataclass
from typing import Literal

#: Kinds of judgements (``preference.data.rows``).
Kind = Literal["pairs", "top-1", "ranking", "thumbs"]
#: Every judgement of a node takes as much memory as one over the most responses.
MOST_RESPONSES = 64

#: Exports of other systems (``preference.data.formats``), whose names no other package can take.
FORMAT_NAMES = (
    "arena",
    "arena-models",
    "argilla",
    "community-alignment",
    "helpsteer",
    "label-studio",
    "likert",
    "multipref",
    "oasst",
    "openwebui",
    "polis",
    "prism",
    "tldr",
)
#: What is learnt (``preference.data.loading``): a reward, the next token of texts or responses, or
#: a policy: which responses to say.
TASKS = ("reward", "text", "sft", "policy")
#: Of these, what is judged by judgements, and what by the next tokens of texts.
JUDGED, NEXT_TOKENS = ("reward", "policy"), ("text", "sft")
#: What of a language model is trained (``preference.language.base.network``).
TRAINED = ("head", "lora", "full")
#: How a response's length counts among features (``preference.features.text_length``).
LENGTHS = ("bounded", "none", "log")
#: What a language model computes in; ``auto`` is the fastest of the others that loses no range.
DTYPES = ("auto", "float32", "bfloat16", "float16")
#: Whether a backward pass holds the rows of one user (``preference.language.examples``).
USER_PASSES = ("isolated", "shared")
#: Which of a language model's layers LoRA changes: ``all``, ``last:4``, from one to another,
#: counted from 1, or ``auto`` (``preference.language.base.settings``).
LORA_LAYERS = re.compile(r"auto|all|last:([1-9][0-9]{0,3})|([1-9][0-9]{0,3})-([1-9][0-9]{0,3})")
#: Characters of a system prompt.
MOST_SYSTEM = 10_000
#: The server's optimizers (``strategies.steps.optimizers``).
OPTIMIZERS = ("sgd", "adam")


@dataclass(frozen=True)
class Words:
    """The nouns of a task.

    Attributes:
        rows: what users have.
        examples: what a gradient is averaged over.
        revealed: what a model without privacy may tell.
        shared: what a model may reveal about all users together.
    """

    rows: str
    examples: str
    revealed: str
    shared: str


WORDS = {
    "reward": Words("judgements", "judgements", "what any single user judged", "prefers"),
    "text": Words(
        "texts",
        "texts (windows of them, where they are long)",
        "what any single user wrote",
        "writes",
    ),
    "sft": Words("judgements", "judgements", "what any single user was shown", "was shown"),
    "policy": Words("judgements", "judgements", "what any single user judged", "prefers"),
}
