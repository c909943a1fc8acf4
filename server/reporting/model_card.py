"""The model card: the README that travels with a saved model and says what may be claimed of it.

Markdown with a YAML head as model hubs read it. Rounded like the report; no path of this machine
but a local encoder's, which is needed to load the model.
"""

import re
from collections.abc import Mapping
from typing import Any

from murmuration.preference.features.language_head import KIND as HEAD
from murmuration.preference.language.base_model import KIND
from murmuration.privacy.adjacency import Adjacency
from murmuration.server.reporting.figures import (
    about,
    delta_text,
    epsilon_text,
    examples_of,
    in_words,
    loss_text,
    revealed,
    rows_of,
    says_next_tokens,
    share_text,
    shared,
    task_of,
)
from murmuration.server.reporting.report import error_words

# What the card of a language model says otherwise than that of a linear head.

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
        f"{numbers} trained weights; {_holds(features)}."
    )


def _holds(features: Mapping[str, Any]) -> str:
    """What is in the folder of a model with LoRA."""
    if features.get("merged"):
        return "the base is an adapter itself, so this folder holds the whole model, merged"
    return "this folder holds these, and needs the base"


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
        else f"with LoRA of rank {features['rank']}, {numbers} trained weights; {_holds(features)}"
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
    if features.get("train") == "lora" and not features.get("merged"):
        head += "from peft import PeftModel\n"
        plain = (
            f'{kind}.from_pretrained("{base}"{"" if says else ", num_labels=1"})\n'
            f"model = PeftModel.from_pretrained(model, {place})"
        )
    module, load = ("likelihood", "load_scorer") if says else ("reward", "load_reward")
    # Users' own texts have no prompts; what is scored is a response after one.
    written = (
        "read a prompt and a response together; in training it read texts alone."
        if features.get("task") == "text"
        else "write texts down as in training."
    )
    return (
        "```python\n"
        f"from murmuration.preference.language.{module} import {load}\n"
        f"model = {load}({place})\n"
        'model.score(["Spend it or save it?"], ["Put it aside for now."])\n'
        "```\n\n"
        "or, on the command line, `murmuration score path/to/this/folder --prompt … "
        f"--response …`: both come with Murmuration, and {written}"
        f"{_SCORE if says else ''} By transformers alone:\n\n"
        f"```python\n{head}model = {plain}\n```"
    )


_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def model_card(result: Mapping[str, Any]) -> str:
    """README.md of the model of the run whose ``result.json`` this is."""
    parts = [
        _front_matter(result),
        TITLES[task_of(result)],
        _what(result),
        "## Privacy",
        *_privacy(result),
        *(f"> **Warning.** {_plain(text)}" for text in result["warnings"]),
        "## Accuracy",
        _accuracy(result),
        "## Use",
        *_use(result),
        "## How it was trained",
        _training(result),
        "## Limits",
        "\n".join(f"- {text}" for text in _limits(result)),
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter(result: Mapping[str, Any]) -> str:
    tags = ["reward-model", "preference-learning", "rlhf", "federated-learning", "flower"]
    if says_next_tokens(result):
        tags = ["text-generation", "federated-learning", "flower"]
    if result["private"] and result.get("proven", True):
        tags.insert(0, "differential-privacy")
    encoder = str(result["features"].get("path", ""))
    base = [f'base_model: "{encoder}"'] if _HUB_NAME.fullmatch(encoder) else []
    lines = ["library_name: murmuration", *base, "tags:", *(f"- {tag}" for tag in tags)]
    return "\n".join(["---", *lines, "---"])


def _what(result: Mapping[str, Any]) -> str:
    if says_next_tokens(result):
        return next_tokens(result, _plain(result["features"]["path"]))
    if is_language_model(result["features"]):
        kind = what(result, _plain(result["features"]["path"]))
    else:
        kind = f"a linear head of {result['dimension']:,} weights over {_features(result)}."
    return (
        "Given a prompt and a response it returns a number: the higher, the more the crowd would "
        "like the response. Numbers for the same prompt compare; their zero means nothing. It is "
        f"{kind}"
    )


def _use(result: Mapping[str, Any]) -> list[str]:
    if is_language_model(result["features"]):
        return [use(result, _plain(result["features"]["path"]))]
    return [
        "```python\n"
        "from murmuration.preference.reward import RewardModel\n"
        'model = RewardModel.load("path/to/this/folder")\n'
        'model.score("Spend it or save it?", "Put it aside for now.")\n'
        "```",
        "or, on the command line, `murmuration score path/to/this/folder --prompt … --response …`. "
        "Both come with Murmuration.",
    ]


def _features(result: Mapping[str, Any]) -> str:
    features = result["features"]
    if features.get("kind") == "hashing":
        return "hashed word n-grams of the response and its length"
    return f"frozen features of the encoder `{_plain(features.get('path', 'unknown'))}`"


def _privacy(result: Mapping[str, Any]) -> list[str]:
    if not result["private"]:
        return [
            f"**No privacy.** Exact gradients were used; the weights may reveal "
            f"{revealed(task_of(result))}. This model is for comparison with private ones."
        ]
    sentence = in_words(Adjacency(result["adjacency"]).sentence, task_of(result))
    if not result.get("proven", True):
        return [f"**Nothing proven.** {_plain(result['guarantee'])}"]
    if result.get("privacy_level") == "item":
        return [
            f"**ε = {epsilon_text(result['epsilon'])} for the label of each single judgement, not "
            f"for whole users.** {_plain(result['guarantee'])}"
        ]
    texts = [
        f"**ε = {epsilon_text(result['epsilon'])}, δ = {delta_text(result['delta'])}, at the level "
        f"of whole users, under {result['adjacency']} adjacency.** {sentence} The figures cover "
        f"all {result['rounds']:,} rounds together. Spent according to the ledger, of a budget of "
        f"ε = {result['epsilon_target']:g}; composed by privacy loss distributions.",
    ]
    if result["stopped"]:
        texts.append(
            f"Training stopped after {result['rounds']:,} of {result['rounds_planned']:,} planned "
            f"rounds: {_plain(result['stopped'])}"
        )
    return texts


def _accuracy(result: Mapping[str, Any]) -> str:
    users, by_user = result["heldout_users"], result["heldout_accuracy_by_user"]
    if result["heldout_accuracy"] is None:
        return "Not measured."
    if not result["test_is_public"]:
        what = (
            "next tokens guessed right" if says_next_tokens(result) else "judgements, ties left out"
        )
        loss = f"{loss_text(result)}; " if says_next_tokens(result) else ""
        return (
            f"{loss}{share_text(by_user, users)} of the {what}, by user, of about {users:,} users "
            f"who were not trained on, with a standard error of at most {error_words(result)}."
        )
    if says_next_tokens(result):
        return (
            f"On the {rows_of(task_of(result))} of {users:,} users who were not trained on: "
            f"{loss_text(result)}; {share_text(result['heldout_accuracy'], users)} of the next "
            f"tokens guessed right, {share_text(by_user, users)} averaged by user."
        )
    return (
        f"{share_text(result['heldout_accuracy'], users)} of the judgements of {users:,} users who "
        f"were not trained on (ties left out); {share_text(by_user, users)} averaged by user, with "
        f"a standard error of at most {error_words(result)}. Guessing would be "
        f"right {_chance(result)} of the time."
    )


def _chance(result: Mapping[str, Any]) -> str:
    chance = result.get("heldout_chance") or 0.5
    return "half" if chance == 0.5 else f"{100 * chance:.0f} %"


def _training(result: Mapping[str, Any]) -> str:
    text = (
        f"{result['rounds']:,} rounds of federated gradient descent (strategy "
        f"`{result['strategy']}`, {_learnt(result)}) over {result['users']:,} users."
    )
    if result.get("account"):
        text += f" {_plain(result['account'])}"
    else:
        text += (
            f" {result['cohort']:,} of them were expected in a round, each with the average "
            f"gradient over at most {result['group_size']:,} of their "
            f"{examples_of(task_of(result))}."
        )
    if result["private"] and result["clip_norm"] and not result.get("account"):
        text += (
            f" Each user's vector was clipped to length {result['clip_norm']:g}, and Gaussian "
            f"noise of {about(result['noise_multiplier'], 3)} times that length per coordinate "
            "was added to their sum."
        )
    return text + (
        " Randomness was seeded, as in a simulation."
        if result["seeded"]
        else " Randomness came from the operating system."
    )


def _learnt(result: Mapping[str, Any]) -> str:
    if says_next_tokens(result):
        return f"task `{task_of(result)}`"
    return f"model of preferences `{result.get('model', 'btl')}`"


_REWARD_LIMITS = (
    "It knows what this crowd said about the topics it was asked about, and the majority's "
    "taste more than anybody's own. It does not know what is true, safe or good.",
    "It is not for judging people, nor for guessing what a particular person prefers.",
    "Used as the reward in optimization it can be gamed: check what comes out by other means.",
)


def _limits(result: Mapping[str, Any]) -> list[str]:
    texts = [*(LIMITS if says_next_tokens(result) else _REWARD_LIMITS)]
    if result["features"].get("kind") == "hashing":
        texts.append(
            "It sees words and short phrases, not meaning, and does not look at the prompt."
        )
    if result["private"]:
        texts.append(
            f"The guarantee does not cover {_uncovered(result)}other runs on the same people, "
            f"or what the crowd as a whole {shared(task_of(result))}. It holds as long as seeds "
            "and sampling coins stay secret."
        )
    return texts


def _uncovered(result: Mapping[str, Any]) -> str:
    if result["test_is_public"]:
        return "test users, "
    return "" if result.get("heldout_epsilon") is not None else "held-out users, "


def _plain(text: object) -> str:
    """A text on one line that cannot start other Markdown or HTML."""
    line = " ".join(str(text).split()).replace("`", "'")
    return line.replace("<", "&lt;")
