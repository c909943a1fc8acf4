"""Outputs of an alignment: report, plot of reward and divergence, the policy's card."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from io import BytesIO
from math import hypot
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.console import Group
from rich.text import Text

from murmuration.alignment.evaluation import BUDGET, PARTED
from murmuration.alignment.writing import read_lines
from murmuration.api.run import Run
from murmuration.preference.online import is_of_hub
from murmuration.privacy.durable_files import replace_file
from murmuration.privacy.figures import duration, share_text
from murmuration.privacy.promise import Promise
from murmuration.reporting.again import locked
from murmuration.reporting.card_head import head, loading, made_from
from murmuration.reporting.jinja import html_templates, joined_lines, markdown_templates
from murmuration.reporting.promise import Details, details, paragraphs, table
from murmuration.terminal.tables import table_of

#: What reasons of ending are called.
WHY = {
    "": "all steps were made",
    BUDGET: "the divergence from the base passed its budget",
    PARTED: "the reward went on rising while the true reward fell",
}


def write_report(folder: Path, result: Mapping[str, Any], promise: Promise) -> Path:
    """Write ``plots/reward_kl.png`` and ``report.html`` of an alignment; return the latter.

    Args:
        folder: that of the alignment, with its ``metrics.jsonl``.
        result: the figures of ``result.json``.
        promise: as of ``card``.
    """
    png = BytesIO()
    figure(result, evaluations(folder)).savefig(png, dpi=160)
    (folder / "plots").mkdir(exist_ok=True)
    replace_file(folder / "plots" / "reward_kl.png", png.getvalue())
    uri = f"data:image/png;base64,{b64encode(png.getvalue()).decode('ascii')}"
    page = _PAGE.render(
        result=result,
        base=_public_name(str(result["base"])),
        why=WHY[result["stopped"]],
        promise=[text.replace("**", "") for text in paragraphs(promise)],
        warnings=[_NO_BETTER] if result["policy"]["proxy"] <= 0 else [],
        images={"reward_kl": (uri, uri)},
    )
    replace_file(folder / "report.html", page.encode())
    return folder / "report.html"


def write_again(folder: Path) -> tuple[Path, Group]:
    """Write the report of an alignment again; return its path, and what a terminal shows.

    Raises:
        InputError: it has not ended, its files do not fit each other, or it is in use.
    """
    aligned = Run.load(folder)
    with locked(aligned.path):
        page = write_report(aligned.path, aligned.result, aligned.promise)
    return page, summary(aligned.result, folder)


def evaluations(folder: Path) -> list[dict[str, Any]]:
    """A line for each evaluation of an alignment."""
    return read_lines(folder / "metrics.jsonl")


def summary(result: Mapping[str, Any], folder: Path) -> Group:
    """The terminal's summary of an alignment that has ended."""
    headings = {
        "": "",
        "step": "step",
        "proxy": "reward",
        "kl": result["kl_is"],
        "truth": "true reward",
        "unreadable": "invalid generations",
        "words": "words",
        "cut_off": "cut off",
    }
    rows = [
        {"": name, **{key: result[name].get(key) for key in headings if key}}
        for name in ("reference", "policy")
    ]
    lines = [_NO_BETTER] if result["policy"]["proxy"] <= 0 else []
    lines.append(
        f"{WHY[result['stopped']]}; the policy of step {result['saved_step']} is in {folder}/model"
    )
    return Group(table_of(rows, headings), *map(Text, lines))


_NO_BETTER = "the policy's reward is no better than the base's: it learned nothing that helps"


def figure(result: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Figure:
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
        (panels[0], "kl", f"{result['kl_is']} over the reference, nats"),
        (panels[1], "step", "step"),
    ):
        places = [row[name] for row in rows]
        for name_of_line, (colour, values, errors) in lines.items():
            axes.errorbar(
                places, values, errors, color=colour, marker="o", ms=3.5, lw=1.3, label=name_of_line
            )
        at = next(row[name] for row in rows if row["step"] == result["saved_step"])
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
        made_from=made_from(result.get("origin", {})),
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
    text = joined_lines(
        _DEMONSTRATIONS,
        result=result,
        base=base,
        promise=paragraphs(promise),
        made_from=made_from(result.get("origin", {})),
    )
    return f"{_head(['sft'], told, base, adapter=True)}\n{text}"


def _public_name(base: str) -> str:
    """A base's name on a hub; empty for a folder, whose name is private."""
    return base if is_of_hub(base) and not Path(base).exists() else ""


_TEMPLATES, _SIGNED = Path(__file__).with_name("templates"), "{:+.2f}".format
_CARDS = markdown_templates(_TEMPLATES, {"signed": _SIGNED})
_FILTERS = {"signed": _SIGNED, "share": share_text, "duration": duration}
_PAGE = html_templates(_TEMPLATES, _FILTERS).get_template("report.html")
_POLICY = _CARDS.get_template("policy_card.md")
_DEMONSTRATIONS = _CARDS.get_template("demonstrations_card.md")
