"""The model card: the README that travels with a saved model and says what may be claimed of it.

Markdown with a YAML head as model hubs read it (`card_head`). Rounded like the report; no path of
this machine: a base in a folder goes by its last name.
"""

from collections.abc import Mapping
from typing import Any

from murmuration.preference.base_names import last_name, without_folders
from murmuration.preference.features.language_head import KIND as HEAD
from murmuration.preference.features.language_states import KIND as STATES
from murmuration.preference.language.base.settings import KIND as LANGUAGE_MODEL
from murmuration.preference.language.checkpoint import origin_below
from murmuration.privacy.figures import round_digits, share_text
from murmuration.reporting.card_head import head, hub_name, loading, made_from, measured
from murmuration.reporting.facts import facts
from murmuration.reporting.jinja import TEMPLATES, joined_lines, markdown_templates
from murmuration.reporting.promise import Details, table

_TITLES = {
    "reward": "A reward model learnt from a crowd's preferences",
    "text": "A language model trained on a crowd's own texts",
    "sft": "A language model trained on responses that a crowd was shown",
    "policy": "A language model aligned with a crowd's preferences",
}


def model_card(result: Mapping[str, Any], promise: Details) -> str:
    """README.md of the model of the run with this result, with ``details`` of
    what was promised."""
    lacking = {"kind": "", "path": "unknown", "train": "head"}
    lacking |= {"merged": False, "length": ""}
    lacking |= {"layers": "all", "layer": 0}
    lacking |= {"system": "", "strengths": (), "dimension": 0}
    told, features = facts(result), {**lacking, **result["features"]}
    path = str(features["path"])
    speaks = features["kind"] in (LANGUAGE_MODEL, HEAD) or told["writes"]
    adapter = speaks and features["train"] == "lora" and not features["merged"]
    base = hub_name(path)
    origin = origin_below(path) if speaks or features["kind"] == STATES else {}
    card = joined_lines(
        _CARD,
        told,
        title=_TITLES[told["task"]],
        features=features,
        path=last_name(path).removeprefix("./"),
        language_model=speaks,
        made_from=made_from(origin),
        warnings=[without_folders(str(text)) for text in told["warnings"]],
        holds=(
            "the base is an adapter itself, so this folder holds the whole model, merged"
            if features["merged"]
            else "this folder holds these, and needs the base"
        ),
        loading=loading(told["writes"], base=base, adapter=adapter),
        promise=table(promise),
    )
    return _head(told, promise, base, speaks, adapter) + "\n" + card


def _head(told: Mapping[str, Any], promise: Details, base: str, speaks: bool, adapter: bool) -> str:
    private = ["differential-privacy"] if told["level"] == "user" else []
    kinds = ["text-generation"] if told["writes"] else ["reward-model", "preference-learning"]
    whole = "transformers" if speaks else "murmuration"
    return head(
        writes=told["writes"],
        tags=[*private, *kinds, "rlhf", "federated-learning", "flower"],
        promise=promise,
        library="peft" if adapter else whole,
        base=base,
        relation=("adapter" if adapter else "finetune") if speaks else "",
        index=_measured(told),
    )


def _measured(told: Mapping[str, Any]) -> dict[str, Any] | None:
    """The measurements on a public test; None without one."""
    if not told["test_is_public"] or told["heldout_accuracy"] is None:
        return None
    next_tokens, writes = told["next_tokens"], told["writes"]
    figures: dict[str, tuple[str, float | None]] = {
        "Accuracy": ("accuracy", told["heldout_accuracy"]),
        "Accuracy, mean over users": ("accuracy", told["heldout_accuracy_by_user"]),
        "Loss, nats a token": ("loss", told["heldout_loss"]),
        "Perplexity": ("perplexity", told["heldout_perplexity"]),
    }
    return measured(
        _TITLES[told["task"]],
        "Next tokens" if next_tokens else "Which response users preferred",
        "text-generation" if writes else "text-classification",
        told["test"] or "public test",
        figures,
    )


_FILTERS = {"share": share_text, "round_digits": round_digits, "number": "{:g}".format}
_CARD = markdown_templates(TEMPLATES, _FILTERS).get_template("model_card.md")
