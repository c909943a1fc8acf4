"""The head of a card as model hubs read it, and what is said there of loading a language model.

YAML between two lines of dashes. What an export changes of it (`amended`) are whole entries, and
the passage between two comments that says how to load the model.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from murmuration.preference.language.checkpoint import MINILM, MINILM_HUB
from murmuration.server.reporting.promise import Promise

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z_-]*")
_NOT_TEXT = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}
_BEGIN, _END = "<!-- loading -->", "<!-- end of loading -->"
#: How a text is written down for a language model (``preference.language.tokens``).
_WRITTEN = (
    "Texts are written down by the tokenizer's chat template, if it has one; for an encoder as a "
    "pair of prompt and response, of two token types if it has them; else as the prompt, an empty "
    "line and the response."
)


def hub_name(path: str) -> str:
    """A base's name on a hub; empty for a folder."""
    if path == MINILM:
        return MINILM_HUB
    return path if _HUB_NAME.fullmatch(path) else ""


def head(
    *,
    writes: bool,
    tags: Sequence[str],
    promise: Promise,
    library: str = "murmuration",
    base: str = "",
    relation: str = "",
    index: Mapping[str, Any] | None = None,
) -> str:
    """The head, with its dashes.

    Args:
        writes: whether the model says next tokens; else it is a reward.
        tags: beside those of all our models.
        promise: what its users were promised.
        library: which loads it.
        base: its name on a hub; empty for a folder.
        relation: to that, in a hub's words.
        index: what was measured, of `measured`.
    """
    entries: dict[str, Any] = {"library_name": library}
    if base:
        entries["base_model"] = base
    if base and relation:
        entries["base_model_relation"] = relation
    entries["pipeline_tag"] = "text-generation" if writes else "text-classification"
    entries["tags"] = [*dict.fromkeys([*tags, "murmuration"])]
    if index:
        entries["model-index"] = [dict(index)]
    entries["differential_privacy"] = {k: v for k, v in promise.items() if v is not None}
    return "\n".join(["---", *_yaml(entries), "---", ""])


def measured(
    name: str, task: str, pipeline: str, test: str, figures: Mapping[str, tuple[str, float | None]]
) -> dict[str, Any]:
    """An entry of ``model-index``: ``figures`` on a public test, by what they are called, with
    their kinds in the hub's words; those that are None are left out."""
    metrics = [
        {"type": kind, "name": called, "value": round(value, 4)}
        for called, (kind, value) in figures.items()
        if value is not None
    ]
    dataset = {"name": test, "type": test if _HUB_NAME.fullmatch(test) else "local"}
    kind = {"type": pipeline, "name": task}
    return {"name": name, "results": [{"task": kind, "dataset": dataset, "metrics": metrics}]}


def loading(writes: bool, *, base: str = "", adapter: bool = False) -> str:
    """How transformers alone, and peft for an adapter, load a language model; ``base`` is its name
    on a hub."""
    loader = "AutoModelForCausalLM" if writes else "AutoModelForSequenceClassification"
    width = "" if writes else ", num_labels=1"
    code = [f"from transformers import {loader}, AutoTokenizer"]
    code += ["from peft import PeftModel"] * adapter
    code += ['folder = "path/to/this/folder"', "tokenizer = AutoTokenizer.from_pretrained(folder)"]
    if adapter:
        code += [
            f'base = "{base or "path/to/the/base"}"',
            f"model = {loader}.from_pretrained(base{width})",
            "model.config.pad_token_id = tokenizer.pad_token_id",
            "model = PeftModel.from_pretrained(model, folder).eval()",
        ]
    else:
        code += [f"model = {loader}.from_pretrained(folder).eval()"]
    last = "" if writes else " A score is the only logit."
    lines = ["By transformers alone:", "", "```python", *code, "```", "", _WRITTEN + last]
    return "\n".join([_BEGIN, "", *lines, "", _END])


def amended(card: str, changes: Mapping[str, Any], passage: str = "", audit: str = "") -> str:
    """A card with other entries in its head (None: without), another `loading`, and an audit."""
    if not card.startswith("---\n") or "\n---\n" not in card:
        card = f"---\n---\n{card}"
    front, body = card.removeprefix("---\n").split("---\n", 1)
    for name, value in changes.items():
        front = re.sub(rf"^{re.escape(name)}:.*\n(?:[ -].*\n)*", "", front, flags=re.MULTILINE)
        if value is not None:
            front = "".join(f"{line}\n" for line in _yaml({name: value})) + front
    if passage:
        old = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.DOTALL)
        body = old.sub(lambda _: passage, body)
    if audit:
        front = re.sub(r"^  audit: .*$", lambda _: f"  audit: {_scalar(audit)}", front, flags=re.M)
        body = re.sub(r"^\| audit \| .* \|$", lambda _: f"| audit | {audit} |", body, flags=re.M)
    return f"---\n{front}---\n{body}"


def _yaml(value: Any, pad: str = "") -> list[str]:
    """Lines of YAML of dictionaries and lists."""
    lines = []
    for name, entry in value.items() if isinstance(value, Mapping) else ((None, e) for e in value):
        start = f"{pad}- " if name is None else f"{pad}{name}: "
        if not isinstance(entry, Mapping | list):
            lines.append(start + _scalar(entry))
        elif name is None:  # its first line stands behind the dash
            inner = _yaml(entry, f"{pad}  ")
            lines += [start + inner[0][len(start) :], *inner[1:]]
        else:
            deeper = pad if isinstance(entry, list) else f"{pad}  "
            lines += [start.rstrip(), *_yaml(entry, deeper)]
    return lines


def _scalar(value: Any) -> str:
    if isinstance(value, float):
        text = repr(value)  # 1e-05 is a text to readers of YAML 1.1
        return text.replace("e", ".0e") if "e" in text and "." not in text else text
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT:
        return value
    return json.dumps(value, ensure_ascii=False)
