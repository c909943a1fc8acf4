"""What the card of a language model says otherwise than that of a linear head."""

from collections.abc import Mapping
from typing import Any

from preference.language_base import KIND
from preference.language_head import KIND as HEAD

TITLES = {
    "reward": "# A reward model learnt from a crowd's preferences",
    "text": "# A language model trained on a crowd's own texts",
    "sft": "# A language model trained on responses that a crowd was shown",
}
#: Of models that say the next token.
LIMITS = (
    "It writes what is likely after what it has read. It does not know what is true, safe or good.",
    "Its base was trained by somebody on something; that is outside the guarantee given here.",
)


_SCORE = " A score is the response's log-likelihood in nats, given the prompt, its end included."


def is_language_model(features: Mapping[str, Any]) -> bool:
    """Whether a result's features are those of a language model."""
    return features.get("kind") in (KIND, HEAD)


def what(result: Mapping[str, Any], base: str) -> str:
    """What it is, in a clause; ``base`` is its name as it may be printed."""
    features, numbers = result["features"], f"{result['dimension']:,}"
    if features["kind"] == HEAD:
        return f"the language model `{base}`, unchanged, with a head of {numbers} trained weights."
    if features["train"] == "full":
        return f"the language model `{base}` with a head, all {numbers} weights trained."
    return (
        f"the language model `{base}` with a head and LoRA of rank {features['rank']}, together "
        f"{numbers} trained weights; this folder holds these, and needs the base."
    )


def next_tokens(result: Mapping[str, Any], base: str) -> str:
    """What a model is that says the next token."""
    features, numbers = result["features"], f"{result['dimension']:,}"
    learnt = {
        "text": "users' own texts",
        "sft": "the responses of their judgements, given the prompts; both of every judgement, "
        "whichever was chosen",
    }[features["task"]]
    if features.get("as_published"):
        learnt = "the chosen responses of their judgements, given the prompts, and no others"
    trained = (
        f"all {numbers} weights trained"
        if features["train"] == "full"
        else f"with LoRA of rank {features['rank']}, {numbers} trained weights; this folder holds "
        "these, and needs the base"
    )
    return (
        f"It says how likely each next token of a text is, and so can write: the language model "
        f"`{base}`, {trained}. It was trained on {learnt}."
    )


def use(result: Mapping[str, Any], base: str) -> str:
    """How to load it."""
    features = result["features"]
    place = '"path/to/this/folder"'
    says = features.get("task", "reward") != "reward"
    kind = "AutoModelForCausalLM" if says else "AutoModelForSequenceClassification"
    plain = f"{kind}.from_pretrained({place})"
    head = f"from transformers import {kind}\n"
    if features.get("train") == "lora":
        head += "from peft import PeftModel\n"
        plain = (
            f'{kind}.from_pretrained("{base}"{"" if says else ", num_labels=1"})\n'
            f"model = PeftModel.from_pretrained(model, {place})"
        )
    module, load = ("likelihood", "load_scorer") if says else ("language_reward", "load_reward")
    # Users' own texts have no prompts; what is scored is a response after one.
    written = (
        "read a prompt and a response together; in training it read texts alone."
        if features.get("task") == "text"
        else "write texts down as in training."
    )
    return (
        "```python\n"
        f"from preference.{module} import {load}\n"
        f"model = {load}({place})\n"
        'model.score(["Spend it or save it?"], ["Put it aside for now."])\n'
        "```\n\n"
        "or, on the command line, `murmuration score path/to/this/folder --prompt … "
        f"--response …`: both come with Murmuration, and {written}"
        f"{_SCORE if says else ''} By transformers alone:\n\n"
        f"```python\n{head}model = {plain}\n```"
    )
