"""What is told of an alignment: plots of reward against divergence, and the policy's card."""

import json
from collections.abc import Mapping, Sequence
from math import hypot
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from murmuration.alignment.align import WHY
from murmuration.preference.data.sources import is_hub_name
from murmuration.privacy.promise import Promise
from murmuration.reporting.card_head import head, loading
from murmuration.reporting.jinja import joined_lines, markdown_templates
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
    text = joined_lines(
        _POLICY,
        result=result,
        base=base,
        why=WHY[result["stopped"]],
        promise=paragraphs(promise),
        table=table(told),
        loading=loading(True, base=base, adapter=adapter),
    )
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
    text = joined_lines(_DEMONSTRATIONS, result=result, base=base, promise=paragraphs(promise))
    return f"{_head(['sft'], told, base, adapter=True)}\n{text}"


def _public_name(base: str) -> str:
    """A base's name on a hub; empty for a folder, whose name is nobody's business."""
    return base if is_hub_name(base) and not Path(base).exists() else ""


_CARDS = markdown_templates(Path(__file__).with_name("templates"), {"signed": "{:+.2f}".format})
_POLICY = _CARDS.get_template("policy_card.md")
_DEMONSTRATIONS = _CARDS.get_template("demonstrations_card.md")
