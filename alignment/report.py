"""What is told of an alignment: plots of reward against divergence, and the policy's card."""

import json
from collections.abc import Mapping, Sequence
from math import hypot
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from matplotlib.figure import Figure

from murmuration.alignment.align import WHY
from murmuration.preference.data.sources import is_hub_name
from murmuration.privacy.promise import Promise
from murmuration.reporting.card_head import head, loading
from murmuration.reporting.promise import Details, details, paragraphs, table


def draw(out: Path) -> None:
    """``reward_kl.png`` in an alignment's folder, from its ``metrics.jsonl``."""
    text = (out / "metrics.jsonl").read_text(encoding="utf-8")
    result = json.loads((out / "result.json").read_text(encoding="utf-8"))
    rows = [json.loads(line) for line in text.splitlines()]
    figure(rows, int(result["saved_step"]), result["kl_is"]).savefig(out / "reward_kl.png", dpi=120)


def figure(rows: Sequence[Mapping[str, Any]], saved: int, kl_is: str = "KL") -> Figure:
    """The reward that was climbed and the true one, both over the reference's, against KL, or what
    stands for it, and against steps; with the policy that was saved."""
    drawn = Figure(figsize=(9.0, 3.8), layout="constrained")
    panels = drawn.subplots(1, 2, sharey=True)
    lines: dict[str, tuple[str, list[float], list[float] | None]]
    lines = {"reward that was climbed": ("C0", [row["proxy"] for row in rows], None)}
    if rows[0]["truth"] is not None:
        first = rows[0]["truth_error"] or 0.0  # of a difference, as if of other prompts
        errors = [
            1.96 * hypot(first, row["truth_error"] or 0.0) * (row is not rows[0]) for row in rows
        ]
        truths = [row["truth"] - rows[0]["truth"] for row in rows]
        lines["true reward"] = ("C1", truths, errors)
    for axes, name, label in (
        (panels[0], "kl", f"{kl_is} over the reference, nats"),
        (panels[1], "step", "step"),
    ):
        places = [row[name] for row in rows]
        for told, (colour, values, errors) in lines.items():
            axes.errorbar(
                places, values, errors, color=colour, marker="o", ms=3.5, lw=1.3, label=told
            )
        at = next(row[name] for row in rows if row["step"] == saved)
        axes.axvline(at, color="0.6", ls=":", lw=1, label="saved")
        axes.axhline(0.0, color="0.85", lw=1, zorder=0)
        axes.set_xlabel(label)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("over the reference, logits")
    panels[0].legend(frameon=False, fontsize=8)
    return drawn


def card(result: Mapping[str, Any], promise: Promise) -> str:
    """README.md of a policy.

    Args:
        result: of `align`.
        promise: of the base, the reward, and a truth that is a model.
    """
    base, told = _public_name(str(result["base"])), details(promise)
    adapter = not result.get("learnt")  # which is merged, so that all weights are there
    text = _CARD.render(
        result=result,
        base=base,
        why=WHY[result["stopped"]],
        promise=paragraphs(promise),
    )
    text = text.replace("@PROMISE@", table(told), 1)
    text = text.replace("@LOADING@", loading(True, base=base, adapter=adapter), 1)
    return f"{_head(['rlhf'], told, base, adapter)}\n{text}"


def _head(tags: list[str], told: Details, base: str, adapter: bool) -> str:
    return head(
        writes=True,
        tags=["text-generation", *tags, *["differential-privacy"] * bool(told["runs"])],
        promise=told,
        library="peft" if adapter else "transformers",
        base=base,
        relation="adapter" if adapter else "finetune",
    )


def learnt_card(result: Mapping[str, Any], promise: Promise) -> str:
    """README.md of what demonstrations made of a base; arguments as of `card`, of the base alone,
    with ``result`` as far as it is known by then."""
    base, told = _public_name(str(result["base"])), details(promise)
    text = _LEARNT.render(
        result=result,
        base=base,
        promise=paragraphs(promise),
    )
    return f"{_head(['sft'], told, base, adapter=True)}\n{text}"


def _public_name(base: str) -> str:
    """A base's name on a hub; empty for a folder, whose name is nobody's business."""
    return base if is_hub_name(base) and not Path(base).exists() else ""


def _plain(value: object) -> str:
    """A text on one line that cannot start other Markdown or HTML."""
    return " ".join(str(value).split()).replace("`", "'").replace("<", "&lt;")


_JINJA = Environment(
    finalize=_plain, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
_JINJA.filters |= {"signed": "{:+.2f}".format, "share": "{:.1%}".format}
_CARD = _JINJA.from_string("""\
# A language model aligned with a private reward

LoRA of rank {{ result.lora_rank }} ({{ "{:,}".format(result.dimension) }} trained weights) on \
{% if base %}`{{ base }}`{% elif result.get("learnt") %}a base{% else %}the base in \
`adapter_config.json`{% endif %} (SHA-256 \
{{ result.base_digest }}), trained by {{ result.steps.method.upper() }} to climb a private reward \
(SHA-256 {{ result.reward_digest }}) on {{ "{:,}".format(result.prompts_trained) }} public prompts.
{% if result.get("learnt") %}

Before that LoRA of the same shape learnt {{ "{:,}".format(result.learnt.demonstrations) }} public \
demonstrations: what came of it is the reference below. All weights are in this folder.
{% endif %}

## Privacy

{% for text in promise %}
{{ text }}

{% endfor %}
No judgements were read here: this is post-processing of released models, which costs their users \
nothing further. The prompts must have been public: whoever was shown them as their own is not \
protected by these figures.

@PROMISE@

## What it is worth

Saved after {{ result.saved_step }} of {{ result.steps.steps }} steps ({{ why }}). On \
{{ result.evaluate_on }} public prompts that were held out, its answers score \
{{ result.policy.proxy|signed }} logits over the reference's by the reward that was climbed, at a \
{{ "divergence" if result.kl_is == "KL" else result.kl_is }} of \
{{ "%.1f"|format(result.policy.kl) }} nats an answer.
{% if result.policy.proxy <= 0 %}
**That is no better than the base.**
{% endif %}
{% if result.policy.truth is not none %}
By {% if result.truth == "population" %}the embedded population's true reward{% else %}another \
reward model{% endif %} they come to {{ result.policy.truth|signed }}, the \
reference's to {{ result.reference.truth|signed }}.
{% else %}
No true reward was measured: a policy that climbs a reward can game it.
{% endif %}

## Use

`murmuration respond path/to/this/folder --prompts FILE` writes answers with it.

@LOADING@

## Limits

- It writes what a reward likes that was learnt from a crowd. It does not know what is true, safe or
  good, and what it gained by the reward may be words, length or noise: have answers compared.
""")
_LEARNT = _JINJA.from_string("""\
# A language model that learnt public demonstrations

LoRA of rank {{ result.lora_rank }} ({{ "{:,}".format(result.learnt.dimension) }} trained weights) \
on {% if base %}`{{ base }}`{% else %}a base{% endif %} (SHA-256 {{ result.base_digest }}), \
trained on {{ "{:,}".format(result.learnt.demonstrations) }} demonstrations \
({{ "%.2f"|format(result.learnt.loss) }} nats a token in the last of \
{{ result.supervised.epochs }} passes). An alignment with a private reward begins here; that \
reward has no part in it.

## Privacy

{% for text in promise %}
{{ text }}

{% endfor %}
The demonstrations were declared public: nobody's judgements or texts are protected by anything
that was done here.
""")
