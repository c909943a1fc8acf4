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

from jinja2 import Environment, StrictUndefined, Template

from murmuration.privacy.durable_files import replace_file
from murmuration.privacy.promise import delta_text, epsilon_text
from murmuration.reporting import plots
from murmuration.reporting.evidence import attack_rows, second_opinion_rows
from murmuration.reporting.facts import facts
from murmuration.reporting.figures import round_digits, share_text
from murmuration.reporting.provenance import (
    Provenance,
    name_of,
    provenance,
    without_folders,
)


def write_report(
    folder: Path,
    result: Mapping[str, Any],
    metrics: Sequence[Mapping[str, Any]],
    *,
    twin: Mapping[str, Any] | None = None,
    audit: Mapping[str, Any] | None = None,
) -> Path:
    """Write ``plots/accuracy.png``, ``plots/noise.png`` and ``report.html``; returns the last.

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
    for name, draw in (("accuracy", plots.accuracy_plot), ("noise", plots.noise_plot)):
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
    """The report as HTML; ``images`` are PNGs for light and for dark paper, of both plots."""
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
        "attacker": attack_rows(found) if found["level"] in ("user", "item") else {},
        "second_opinion": second_opinion_rows(found),
    }
    return _PAGE.render(found, style=STYLE, images=uris, **told)


_TWIN = (
    "THIS PAGE SHOWS A RUN WITHOUT PRIVACY beside the private one. Its accuracy is an exact figure "
    "about the same people, and no epsilon covers it. Do not publish this page or the twin, unless "
    "the data are public."
)


STYLE = """:root { color-scheme: light dark; --paper: #f6f7f8; --card: #ffffff; --ink: #1f252b;
  --soft: #5b6670; --line: #dfe3e8; --main: #17698c; --alarm: #8a4208; --alarm-paper: #fff4e5;
  --alarm-line: #e0a052; }
@media (prefers-color-scheme: dark) { :root { --paper: #12171c; --card: #1a2027; --ink: #dde3e9;
  --soft: #98a4b0; --line: #303943; --main: #62b6d9; --alarm: #f3c089; --alarm-paper: #2b2116;
  --alarm-line: #8d6130; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.55;
  font: 1.0625rem/1.55 Charter, "Bitstream Charter", "Sitka Text", Cambria, Georgia, serif; }
main { max-width: 43rem; margin: 0 auto; padding: 2.5rem 1.1rem 4rem; }
h1, h2, h3, th, td, figcaption, .eyebrow, aside, footer { font-family: system-ui, -apple-system,
  "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
.eyebrow { margin: 0; color: var(--soft); font-size: .85rem; letter-spacing: .04em; }
h1 { margin: .2rem 0 1rem; font-size: clamp(1.6rem, 6vw, 2.3rem); line-height: 1.15;
  font-weight: 650; letter-spacing: -.015em; text-wrap: balance; }
h2 { margin: 2.6rem 0 .6rem; font-size: 1.15rem; font-weight: 650; }
h3 { margin: 1.6rem 0 .4rem; font-size: 1rem; font-weight: 650; }
p { margin: .6rem 0; }
p.lead { font-size: 1.15rem; }
aside { margin: 1.4rem 0; padding: .8rem 1rem; background: var(--alarm-paper); color: var(--alarm);
  border-left: 4px solid var(--alarm-line); border-radius: 4px; font-size: .95rem; }
aside h2 { margin: 0 0 .3rem; font-size: .95rem; color: inherit; }
aside ul { margin: 0; padding-left: 1.1rem; }
aside li + li { margin-top: .45rem; }
li + li { margin-top: .35rem; }
table { width: 100%; border-collapse: collapse; font-size: .95rem; line-height: 1.4; }
th, td { padding: .5rem 0; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: baseline; overflow-wrap: anywhere; }
th { width: 42%; padding-right: 1rem; font-weight: 400; color: var(--soft); }
td { font-variant-numeric: tabular-nums; }
table + table { margin-top: 1.6rem; }
td small { display: block; color: var(--soft); font-size: .85rem; }
figure { margin: 1.2rem 0 2rem; }
figure img { display: block; width: 100%; height: auto; background: var(--card);
  border: 1px solid var(--line); border-radius: 6px; padding: .5rem; }
figcaption { margin-top: .6rem; color: var(--soft); font-size: .9rem; line-height: 1.45; }
code { font-size: .9em; overflow-wrap: anywhere; }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem; }
@media print { body { background: none; } main { padding: 0; } figure, aside, tr {
  break-inside: avoid; } }
"""

_JINJA = Environment(
    autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
_JINJA.filters |= {
    "round_digits": round_digits,
    "count": "{:,}".format,
    "delta": delta_text,
    "epsilon": epsilon_text,
    "number": "{:g}".format,
    "share": share_text,
    "short": name_of,
}
_JINJA.globals["e"] = math.e


def template(text: str) -> Template:
    """A page in which every text is escaped, with the filters that figures are told with."""
    return _JINJA.from_string(text)


_PAGE = template("""\
{% macro row(name, value, note="") %}
<tr><th scope="row">{{ name }}</th><td>{{ value }}
{%- set note = caller() if caller is defined else note %}
{% if note %}
<small>{{ note }}</small>
{%- endif %}
</td></tr>
{% endmacro %}

{% macro warning_box(title, texts) %}
{% if texts %}
<aside><h2>{{ title }}</h2><ul>
{% for text in texts %}
<li>{{ text }}</li>
{% endfor %}
</ul></aside>
{% endif %}
{% endmacro %}

{% macro figure(name, text) %}
<figure><picture>
<source media="(prefers-color-scheme: dark)" srcset="{{ images[name][1] }}">
<img src="{{ images[name][0] }}" alt="{{ text }}">
</picture><figcaption>
{{ caller() }}
</figcaption></figure>
{% endmacro %}

{% set title %}
{% if level == "none" %}
No privacy: a non-private run
{%- elif level == "claimed" %}
ε = {{ epsilon_text }} claimed at δ = {{ delta_text }}, not proven
{%- elif level == "item" %}
ε = {{ epsilon_text }} for single judgements, not for whole users
{%- elif one_user_per_row %}
ε = {{ epsilon_text }} for single rows, not for people, at δ = {{ delta_text }}
{%- else %}
ε = {{ epsilon_text }} for whole users, at δ = {{ delta_text }}
{%- endif %}
{% endset %}

{% set who = "of %s users who were not trained on" % heldout_users|count %}
{% set guessing %}
{% if heldout_chance is not none and not next_tokens %}
; guessing comes to {{ heldout_chance|share }}
{%- endif %}
{% endset %}

{% macro heldout() %}
{% if heldout_accuracy is none %}
{% call row("Held-out accuracy", "not measured") %}
{% if heldout_epsilon is none %}
No held-out user could be asked.
{% else %}
Too few users for noise at ε = {{ heldout_epsilon|number }}, or telling it again after a crash
would have cost more than the budget.
{% endif %}
{% endcall %}
{% else %}
{% if next_tokens %}
{% call row("Held-out loss", loss_text) %}
The mean over tokens of −log of the probability that the right one was given.
{% if heldout_loss_noise is not none %}
By user; with noise of {{ "%.2g"|format(heldout_loss_noise) }}.
{% endif %}
{% endcall %}
{% endif %}
{% call row("Next tokens guessed right" if next_tokens else
            "Held-out accuracy, top-1" if several else "Held-out accuracy",
            accuracy_text if test_is_public else by_user_text) %}
{% if not test_is_public %}
{% if thumbs %}of {{ judged }}; {% endif %}
by user, of about {{ heldout_users|count }} who were not trained on;
standard error at most {{ error_text }}{{ guessing }}
{% elif next_tokens %}
of the tokens {{ who }}
{% elif thumbs %}
of {{ judged }}; {{ who }}{{ guessing }}
{% else %}
{{ "how often the preferred response scores highest," if several }}
of the judgements {{ who }}; ties left out{{ guessing }}
{% endif %}
{% endcall %}
{% if test_is_public %}
{{ row("the same, averaged by user", by_user_text, "standard error at most " ~ error_text) }}
{% if baselines and baselines.longer_wins is not none %}
{% call row("Longer wins", baselines.longer_wins|share) %}
what one gets who always takes the response with
{{ "more" if baselines.get("kind", "pairs") == "pairs" else "the most" }} words, on the same
judgements of the public test; the model is worth what it adds
{% endcall %}
{% endif %}
{% if baselines and baselines.near %}
{% call row("The model on pairs of nearly equal length", baselines.near.accuracy|share) %}
{{ baselines.near.pairs|count }} pairs of the public test whose word counts differ by at most
{{ (100 * baselines.near.within)|number }} % of the larger one; longer wins comes to
{{ baselines.near.longer_wins|share }} there
{% endcall %}
{% endif %}
{% endif %}
{% if beside.twin is not none %}
{% call row("Without privacy", beside.twin.heldout_accuracy|share) %}
the twin that the operator made: not private, and not to be published unless the data are public
{% endcall %}
{% endif %}
{% if policy_saturated is not none %}
{% call row("Chosen and rejected responses", "%+.2f and %+.2f nats"
            % (policy_chosen_ratio, policy_rejected_ratio)) %}
likelier than where the policy began; if both fall, it learns to say something else
{% endcall %}
{{ row("Pairs beyond the clip", policy_saturated|share, "which teach nothing any more") }}
{% call row("Tokens of a response", "%.1f" % policy_written_tokens) %}
that it writes; of one that was chosen {{ "%.1f"|format(policy_chosen_tokens) }}
{% endcall %}
{% endif %}
{% endif %}
{% endmacro %}

<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
{{ style|safe }}
</style>
</head>
<body>
<main>
<p class="eyebrow">Murmuration · report of a run</p>
<h1>{{ title }}</h1>

<p class="lead">{{ guarantee }}
{% if level in ("user", "claimed") and sentence not in guarantee %}
{{ sentence }}
{% endif %}
</p>
<p class="lead">
{% if level == "none" %}
The model may reveal {{ words.revealed }}. It exists to be compared with private runs; do not
release it where that matters.
{% elif level == "claimed" %}
The figures below repeat that claim. Treat the model as one without protection.
{% elif level == "item" %}
In other words: a user who gave k judgements has spent up to k times this ε on them together. That
is what the ledger counts, for the user with the most judgements.
{% else %}
{{ "For whoever does not know the seed" if seeded else "In other words" }}: whatever one looks
for in what this run released, it is at most e^{{ epsilon|epsilon }}
{%- if epsilon < 20 %}, about {{ (e ** epsilon)|round_digits }},{% endif %} times as likely with
one of two neighbouring data sets as with the other, plus at most {{ delta_text }}. This holds for
all rounds' models taken together, whatever else is known, and for anything that is computed from
them later.
{% endif %}
</p>
{{ warning_box("This run stopped early", [stopped] if stopped else []) }}
{{ warning_box("Before you rely on this", warnings) }}

<h2>Figures</h2>
<table>
{% if accounted %}
{{ row("Privacy spent, ε", epsilon_text, "of a budget of " ~ epsilon_target|number) }}
{% if seen_by_server %}
{{ row("ε against the server itself", seen_by_server, who_adds_noise) }}
{% endif %}
{{ row("Failure allowance, δ", delta_text) }}
{{ row("Adjacency", adjacency) }}
{% else %}
{{ row("Privacy", "none") }}
{% endif %}
{{ heldout() }}
{{ row("Users trained on", users|count, cohort|count ~ " expected in a round") }}
{{ row("Rounds", rounds|count,
       "" if rounds == rounds_planned else "of %s planned" % rounds_planned|count) }}
{{ row("Time in rounds", time_text, speed_text and speed_text ~ " users a second") }}
</table>

{% if baselines and baselines.examples %}
<h2>{{ ("no", "One", "Two", "Three")[baselines.examples|length] }}
{{ "judgement" if baselines.get("kind", "pairs") != "pairs" else "pair" -}}
{{ "s" if baselines.examples|length > 1 }} of the public test</h2>
<p>Rewards compare within a table only; their zero means nothing.
{% if task == "policy" %}
They are what the policy stands for: how much likelier it has made a response than its base does.
{% endif %}
{% if baselines.get("kind", "pairs") != "pairs" %}
Of the responses that were not preferred, the one with the highest reward is shown.
{% endif %}
</p>
{% for pair in baselines.examples %}
<table>
{{ row({"right": "One it gets right", "wrong": "One it gets wrong"}.get(pair.kind,
       "The closest"), pair.prompt, "the prompt") }}
{{ row("Reward %+.2f" % pair.reward_preferred, pair.preferred, "was preferred") }}
{{ row("Reward %+.2f" % pair.reward_other, pair.other, "was not") }}
</table>
{% endfor %}
{% endif %}

<h2>Over the rounds</h2>
{% call figure("accuracy", "Held-out accuracy over rounds"
               ~ (", and epsilon spent so far" if accounted else "")) %}
{% if accounted %}
Top:
{% endif %}
{% if not test_is_public %}
{{ "held" if accounted else "Held" }}-out accuracy, measured once, after the last round, since every
further figure about the held-out users would be one more release.
{% else %}
{{ "how" if accounted else "How" }} often the
{% if next_tokens %}
likeliest next token is the one that a held-out user's text has.
{% else %}
model prefers the response that a held-out user preferred.
{% endif %}
A curve that has gone flat will gain little from more rounds; one that falls is losing to noise, or
its steps are too long.
{% endif %}
{% if accounted %}
Bottom: ε so far. It grows fast at first and slower later, so stopping a run early saves less than
it seems.
{% endif %}
{% endcall %}
{% if not accounted %}
{% call figure("noise", "Length of the update in each round") %}
Length of each round's averaged gradient.
{% endcall %}
{% else %}
{% call figure("noise", "Length of signal and noise in each round's update") %}
The length of the noise in each round's update, and an estimate of what is left without it; dots are
single rounds. Noise points elsewhere every round and averages out, while the signal adds up, so
learning works with the signal well below the noise, just slower. Where the signal cannot be told
from noise its line is missing: such rounds teach little. A larger cohort or more users lower the
noise; more rounds at the same ε raise it.
{% endcall %}
{% endif %}

<h2>How epsilon was computed</h2>
{% if not accounted %}
<p>There is none: exact gradients were released, and no epsilon covers them.</p>
{% else %}
{% if account %}
<p>{{ account }}</p>
{% endif %}
<p>Every release was written to the ledger before its noisy value left memory, so a crash can only
make the ledger show more than was released. Epsilon is the composition of the ledger's entries by
privacy loss distributions (on a grid that errs towards a larger epsilon, with a bound on all
rounding), under the adjacency named above. It is rounded up here.</p>
{% if beside.parts %}
<table>
{% for covers, times, alone in beside.parts %}
{{ row(covers, "ε = %s alone" % alone|epsilon, "charged %s" % (
       "once" if times == 1 else times|count ~ " times")) }}
{% endfor %}
</table>
<p>Parts do not add up to the total: together they cost less than their sum, and what one part of
the users paid is not added to what another did.</p>
{% endif %}
{% if second_opinion %}
<h3>A second opinion</h3>
<p>dp-accounting is another accountant, which shares no code with this one. It was given the events
of the training; what it has no event for is counted by rules that the documentation proves.</p>
<table>
{% for name, value in second_opinion.items() %}
{{ row(name, value) }}
{% endfor %}
</table>
{% endif %}
{% endif %}

{% if attacker %}
<h2>What an attacker could do with it</h2>
<p>However clever, whatever else they know: of somebody who tries to tell two neighbouring data sets
apart{{ ", of single judgements" if level == "item" }}, the guarantee allows no more than this. What
attacks are known to reach is often far less, and an ε of 8 or more forbids little.</p>
<table>
{% for name, value in attacker.items() %}
{{ row(name, value) }}
{% endfor %}
</table>
<p>TPR: the share of those who are in that an attack finds; FPR: the share of those who are not in
that it names wrongly. Guessing has a TPR of 1 % at an FPR of 1 %. TPR and μ follow from the whole
privacy curve: no test of one against the other data set does better than one Gaussian release whose
sensitivity is μ times its noise, but for δ = {{ delta_text }}. Posterior bounds hold except with
probability ≈ δ.</p>
{% endif %}
{% if beside.audit %}
<h2>An audit of the mechanism</h2>
<p>Of <code>{{ beside.audit.target }}</code> under {{ beside.audit.adjacency }}, not of this run:
claimed ε = {{ beside.audit.epsilon_claimed|epsilon }}; attacks show that it is at least
{{ beside.audit.epsilon_lower|number }}, at a confidence of {{ beside.audit.confidence|share }}. A
low bound does not prove that the claim holds.</p>
{% endif %}

<h2>What is not covered</h2>
<ul>
{% if not accounted %}
<li>Everything: no user of this run is protected.</li>
{% else %}
<li>
{% if test_is_public %}
The test file was declared public; the people in it are not protected.
{% elif heldout_epsilon is not none %}
Held-out users are protected as those trained on are: what is said of them has noise at ε =
{{ heldout_epsilon|number }}, which is part of the total.
{% else %}
OUTSIDE THE GUARANTEE: the accuracy on held-out users is an exact figure about their
{{ words.rows }}.
{% endif %}
</li>
<li>{{ "The seed" if seeded else "The generator's state" }}, the coins that decided who took part,
and the lists of participants must stay secret: whoever knows them can undo part of the protection
or all of it.</li>
<li>The folder private/ depends on data outside the accounting. It must not be released.</li>
<li>
{% if strategy == "local-label" %}
Each user's own node is trusted to toss its coins and to keep what it told. The server sees no true
label of those trained on.
{% elif not secure_aggregation %}
The server is trusted: it sees sums before noise is added. So are the nodes, which clip.
{% elif noise_parties %}
The server is trusted to follow the protocol of secure aggregation, and to toss the coins that
decide who is in a round. It saw no sum without the noise that the nodes add: what it learnt itself
is ε against the server, above, if at least {{ noise_parties }} of the nodes in each sum added
theirs. The nodes are trusted to clip: under masks nobody can check.
{% else %}
The server is trusted to follow the protocol of secure aggregation: then it sees, before noise is
added, the sum over all nodes of a round and no node's own, unless it is in league with more than
two thirds of them. The nodes are trusted to clip: under masks nobody can check.
{% endif %}
</li>
<li>Running times, here and in the ledger, are measured and not accounted for.</li>
<li>Other runs on the same people: epsilons add up, and choosing the best of several runs is a
release of each of them.</li>
<li>What the crowd as a whole {{ words.shared }}. Learning that is the purpose, and it may well say
something about a person of whom one knows enough.</li>
{% endif %}
</ul>

<h2>Settings</h2>
<table>
{% if beside.date %}
{{ row("Date", beside.date, "of the first release, in UTC") }}
{% endif %}
{% if beside.command %}
{% call row("Command", beside.command) %}
written from the settings: without the seed, without folders, and without what is left at its
default
{% endcall %}
{% endif %}
{% if versions %}
{% call row("Versions", "murmuration " ~ versions.murmuration) %}
{% for name, value in versions.items() if name != "murmuration" %}
{{ name }} {{ value }}{{ "" if loop.last else ", " }}
{%- endfor %}
{% endcall %}
{% endif %}
{% if beside.declared %}
{% call row("Declared of the data", "by its owner, not counted in it") %}
{% for name, value in beside.declared.items() %}
{{ name }}: {{ value }}{{ "" if loop.last else ", " }}
{%- endfor %}
{% endcall %}
{% endif %}
{{ row("Strategy", strategy) }}
{% if next_tokens %}
{{ row("Task", task, "The model says the next token.") }}
{% else %}
{{ row("Model of preferences", model) }}
{% endif %}
{% if accounted %}
{{ row("Noise multiplier", noise_multiplier|round_digits(4)) }}
{{ row("Clip norm", clip_norm|number if clip_norm else "none") }}
{% endif %}
{{ row(words.rows|capitalize ~ " of a user in a round", "at most " ~ group_size|count,
       "A long text counts once for each of its windows." if task == "text" else "") }}
{{ row("Expected cohort", "%s of %s users" % (cohort|count, users|count)) }}
{% call row("Features", features.get("kind", "unknown")) %}
{% for name, value in features.items() if name != "kind" %}
{{ name.replace("_", " ") }} {{ value|short }}{{ "" if loop.last else ", " }}
{%- endfor %}
{% endcall %}
{{ row("Weights", dimension|count) }}
{% if learning_rate %}
{{ row("Learning rate at its peak", learning_rate|round_digits(3)) }}
{% else %}
{{ row("Learning rate at its peak", "none", "The model was solved for, not trained.") }}
{% endif %}
{% if noise == "discrete" %}
{% call row("Noise", "discrete Gaussian") %}
Whole numbers on a grid of less than 2⁻²⁷ clip norms, drawn exactly; charged as the continuous
Gaussian and what the two can differ by.
{% endcall %}
{% elif noise == "distributed" %}
{% call row("Noise", "discrete Gaussian, in shares") %}
Every registered node adds one of {{ noise_parties }} shares to its sum in every round, in whole
numbers, before it masks it.
{% endcall %}
{% elif noise == "randomized-response" %}
{{ row("Noise", "randomized response", "Labels by coins of whole numbers; no sums.") }}
{% elif noise == "exponential-mechanism" %}
{{ row("Noise", "exponential mechanism", "One policy is drawn, by exact coins; no sums.") }}
{{ row("Policy chosen", choice.name, "SHA-256 " ~ choice.digest) }}
{{ row("Among", "%s policies" % choice.policies|count, "the class " ~ choice["class"]) }}
{% call row("It loses more than the best by", choice.expected_gap_at_most|number) %}
at most, on average over coins; in 19 of 20 draws by {{ choice.gap_at_most_in_19_of_20|number }} at
most. In the unit of losses, summed over {{ words.rows if level == "item" else "users" }}.
{% endcall %}
{% elif accounted %}
{{ row("Noise", "Gaussian, floating point") }}
{% endif %}
{% if user_isolation == "empirical" %}
{% call row("Isolation of users from each other", user_isolation) %}
Users were computed together, where last digits depend on who is beside: measured, not proven, and
no part of epsilon.
{% endcall %}
{% elif user_isolation %}
{% call row("Isolation of users from each other", user_isolation) %}
A user's vector is computed from that user's data and public numbers alone, and sums are exact.
{% endcall %}
{% endif %}
{% if seeded %}
{{ row("Randomness", "seeded", "A simulation that can be repeated.") }}
{% else %}
{{ row("Randomness", "from the operating system") }}
{% endif %}
</table>
<footer>Exact figures stand in result.json, the settings in config.json, every release in
ledger.jsonl.</footer>
</main>
</body>
</html>
""")
