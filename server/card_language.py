"""What the card of a language model says otherwise than that of a linear head."""

from collections.abc import Mapping
from typing import Any

from preference.language_base import KIND
from preference.language_head import KIND as HEAD


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


def use(result: Mapping[str, Any], base: str) -> str:
    """How to load it."""
    features = result["features"]
    place = '"path/to/this/folder"'
    plain = f"AutoModelForSequenceClassification.from_pretrained({place})"
    head = "from transformers import AutoModelForSequenceClassification\n"
    if features.get("train") == "lora":
        head += "from peft import PeftModel\n"
        plain = (
            f'AutoModelForSequenceClassification.from_pretrained("{base}", num_labels=1)\n'
            f"model = PeftModel.from_pretrained(model, {place})"
        )
    return (
        "```python\n"
        "from preference.language_reward import load_reward\n"
        f"model = load_reward({place})\n"
        'model.score(["Spend it or save it?"], ["Put it aside for now."])\n'
        "```\n\n"
        "or, on the command line, `murmuration score path/to/this/folder --prompt … "
        "--response …`: both come with Murmuration, and write texts down as in training. By "
        "transformers alone:\n\n"
        f"```python\n{head}model = {plain}\n```"
    )
