"""The head of a card as model hubs read it, and its passage about loading a language model.

YAML between two lines of dashes. What an export changes of it (`amended`) are whole entries, and
the passage between two comments that says how to load the model.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from murmuration.preference.data.errors import InputError, first_line
from murmuration.preference.language.checkpoint import MINILM, MINILM_HUB
from murmuration.reporting.promise import Details

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
#: A promise's table.
_TABLE = re.compile(r"^\| promise \| \|\n\|---\|---\|\n(?:\|.*\|(?:\n|\Z))+", re.MULTILINE)
_SECTION = re.compile(r"^## Privacy\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_WARNING = "> **Warning.** "
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
    promise: Details,
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
    return _yaml(entries)


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


def made_from(origin: Mapping[str, str]) -> str:
    """A sentence about the origin of a base; ``origin`` is that of `gguf.origin_of`, and the
    sentence is empty if it is.
    """
    if not origin:
        return ""
    licence = origin["license"] or "unknown"
    return (
        f"The base was made from the GGUF file of {origin['name']} (licence: {licence}; SHA-256 "
        f"{origin['sha256']})."
    )


def loading(writes: bool, *, base: str = "", adapter: bool = False) -> str:
    """Instructions to load a language model by transformers alone, and peft for an adapter;
    ``base`` is its name on a hub.
    """
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


def amended(
    card: str,
    changes: Mapping[str, Any],
    passage: str = "",
    promise: str = "",
    told: Sequence[str] = (),
) -> str:
    """A card with other entries in its head (None: without), another `loading`, and, of its
    promise, the paragraphs that are ``told`` and the table; without a table, that it is not known.

    What else its section of privacy says is kept: warnings, and what has no figure.

    Raises:
        InputError: its head is no YAML.
    """
    entries, body = _parts(card)
    entries = {name: value for name, value in {**entries, **changes}.items() if value is not None}
    if passage:
        old = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.DOTALL)
        body = old.sub(lambda _: passage, body)
    if not promise and isinstance(tags := entries.get("tags"), list):
        entries["tags"] = [tag for tag in tags if tag != "differential-privacy"]
    table = "" if (has_section := _SECTION.search(body)) else promise
    body, replaced = _TABLE.subn(lambda _: table, body)
    if has_section:
        body = _SECTION.sub(lambda found: _section(found[1], promise, told), body)
    elif promise and not replaced:
        body = f"{body.rstrip()}\n\n{_section('', promise, told)}"
    return _yaml(entries) + body


def _section(said: str, promise: str, told: Sequence[str]) -> str:
    """The section of privacy, of what it ``said``."""
    plain = [" ".join(text.split()).replace("`", "'").replace("<", "&lt;") for text in told]
    kept = []
    for text in filter(None, map(str.strip, said.split("\n\n"))):
        warning = text.startswith(_WARNING)
        if text.removeprefix(_WARNING) not in plain and (warning or "ε" not in text):
            kept.append(text)
    if not promise and not said.lstrip().startswith("**No privacy.**"):
        plain, kept = ["**What its users were promised is not known.**"], []
    parts = ["## Privacy", *plain, *kept, *([promise.rstrip()] if promise else [])]
    return "\n\n".join(parts) + "\n\n"


def _parts(card: str) -> tuple[dict[str, Any], str]:
    """The entries of a card's head, and what follows; none where it has no head."""
    if not card.startswith("---\n") or "\n---\n" not in card:
        return {}, card
    front, body = card.removeprefix("---\n").split("---\n", 1)
    try:
        result = yaml.safe_load(front) or {}
    except (yaml.YAMLError, RecursionError) as error:
        said = f"its head is no YAML: {first_line(error)}"
        raise InputError(f"the model's README.md: {said}") from None
    if not isinstance(result, dict):
        raise InputError("the model's README.md: its head is YAML without named entries")
    return result, body


class _Dumper(yaml.SafeDumper):
    """No text has lines of its own, whatever is in it: none ends the head."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = None if data.isprintable() else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", data, style)


_Dumper.add_representer(str, _Dumper.represent_str)


def _yaml(entries: Mapping[str, Any]) -> str:
    """The head of these entries, with its dashes."""
    kept = {"sort_keys": False, "allow_unicode": True, "width": math.inf}
    return f"---\n{yaml.dump(dict(entries), Dumper=_Dumper, **kept) if entries else ''}---\n"
