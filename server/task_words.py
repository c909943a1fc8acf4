"""What a report, a card and a summary call things, by what a run learnt (`preference.tasks`)."""

from collections.abc import Mapping
from typing import Any

_ROWS = {"reward": "judgements", "text": "texts", "sft": "judgements"}
_SHARED = {"reward": "prefers", "text": "writes", "sft": "was shown"}
_REVEALED = {
    "reward": "what any single user judged",
    "text": "what any single user wrote",
    "sft": "what any single user was shown",
}


def task_of(result: Mapping[str, Any]) -> str:
    """The task of the run whose ``result.json`` this is; older ones learnt a reward."""
    return str(result.get("task", "reward"))


def says_next_tokens(result: Mapping[str, Any]) -> bool:
    """Whether the model says the next token."""
    return task_of(result) != "reward"


def rows_of(task: str) -> str:
    """What users have: judgements, or texts."""
    return _ROWS[task]


def examples_of(task: str) -> str:
    """What a gradient is averaged over."""
    return "texts (windows of them, where they are long)" if task == "text" else _ROWS[task]


def revealed(task: str) -> str:
    """What a model without privacy may tell."""
    return _REVEALED[task]


def shared(task: str) -> str:
    """What a crowd as a whole does that a model may tell."""
    return _SHARED[task]


def in_words(text: str, task: str) -> str:
    """A sentence about judgements as one about what users have."""
    return text.replace("judgement", "text") if task == "text" else text


def loss_text(result: Mapping[str, Any]) -> str:
    """Loss and perplexity, for models that say the next token."""
    loss, perplexity = result.get("heldout_loss"), result.get("heldout_perplexity")
    if loss is None:
        return "no finite loss"
    shown = f", perplexity {perplexity:.4g}" if perplexity is not None else ""
    return f"{loss:.3f} nats a token{shown}"
