"""The report of a run: what may be claimed, at what cost, and what may not.

Decisions:
- The claim comes first, in words, with the adjacency it is made under; warnings come before any
  figure that they qualify.
- It is written from files of the run that are for release, so it shows nothing that those do not,
  and of paths it shows the last name alone, since a report is passed on.
- Figures are rounded to what they can carry, epsilon always upwards.
- One page: one column, light or dark as the reader has it, no script, nothing fetched from
  anywhere. Jinja escapes every text, so that none can be forgotten.
"""

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from murmuration.preference.base_names import name_of, without_folders
from murmuration.privacy.durable_files import replace_file
from murmuration.privacy.figures import round_digits, share_text
from murmuration.privacy.promise import delta_text, epsilon_text
from murmuration.reporting import plots
from murmuration.reporting.evidence import attack_rows, second_opinion_rows
from murmuration.reporting.facts import facts
from murmuration.reporting.jinja import TEMPLATES, html_templates
from murmuration.reporting.provenance import Provenance, provenance


def write_report(
    folder: Path,
    result: Mapping[str, Any],
    metrics: Sequence[Mapping[str, Any]],
    *,
    twin: Mapping[str, Any] | None = None,
    audit: Mapping[str, Any] | None = None,
) -> Path:
    """Write the plots, as of ``reporting.plots``, and ``report.html``; returns the last.

    Args:
        folder: the run directory.
        result: the figures of ``result.json``.
        metrics: the lines of ``metrics.jsonl``, in order of rounds; may be empty.
        twin: those of a run without privacy. The page then is ``private/report-with-twin.html``.
        audit: a line of ``murmuration audit --json`` about the mechanism.
    """
    folder = Path(folder)
    (folder / "plots").mkdir(parents=True, exist_ok=True)
    images = {}
    drawn = {"accuracy": plots.accuracy_plot, "noise": plots.noise_plot}
    if result["accuracy_over_users"]:
        drawn["users"] = plots.users_plot
    for name, draw in drawn.items():
        light = draw(result, metrics, plots.LIGHT)
        replace_file(folder / "plots" / f"{name}.png", light)
        images[name] = light, draw(result, metrics, plots.DARK)
    path = folder / "report.html"
    if twin is not None:
        path = folder / "private" / "report-with-twin.html"
    beside = replace(provenance(folder), twin=twin, audit=audit)
    replace_file(path, page(result, images, beside).encode())
    return path


def page(
    result: Mapping[str, Any],
    images: Mapping[str, tuple[bytes, bytes]],
    beside: Provenance | None = None,
) -> str:
    """The report as HTML; ``images`` are PNGs for light and for dark paper, of its plots."""
    uris = {
        name: [f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}" for png in both]
        for name, both in images.items()
    }
    beside, found = beside or Provenance(), facts(result)
    found["warnings"] = [without_folders(str(text)) for text in found["warnings"]]
    if beside.twin is not None:
        found["warnings"].append(_TWIN)
    told = {
        "beside": beside,
        "attacker": attack_rows(found) if found["level"] == "user" else {},
        "second_opinion": second_opinion_rows(found),
    }
    return _PAGE.render(found, e=math.e, images=uris, **told)


_TWIN = (
    "THIS PAGE SHOWS A RUN WITHOUT PRIVACY beside the private one. Its accuracy is an exact figure "
    "about the same people, and no epsilon covers it. Do not publish this page or the twin, unless "
    "the data are public."
)

_FILTERS = {
    "round_digits": round_digits,
    "delta": delta_text,
    "epsilon": epsilon_text,
    "number": "{:g}".format,
    "share": share_text,
    "short": name_of,
}
_PAGE = html_templates(TEMPLATES, _FILTERS).get_template("report.html.md")
