"""The model card: the README that travels with a saved model and says what may be claimed of it.

Markdown with a YAML head as model hubs read it (`card_head`). Rounded like the report; no path of
this machine: a base in a folder goes by its last name.
"""

import re
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, StrictUndefined

from murmuration.preference.base_names import last_name
from murmuration.preference.features.language_head import KIND as HEAD
from murmuration.preference.language.base_model import KIND as LANGUAGE_MODEL
from murmuration.preference.language.policy_class import KIND as CLASS
from murmuration.reporting.card_head import head, hub_name, loading, measured
from murmuration.reporting.facts import facts
from murmuration.reporting.figures import round_digits, share_text
from murmuration.reporting.promise import Details, table
from murmuration.reporting.provenance import without_folders

_TITLES = {
    "reward": "A reward model learnt from a crowd's preferences",
    "text": "A language model trained on a crowd's own texts",
    "sft": "A language model trained on responses that a crowd was shown",
    "policy": "A language model aligned with a crowd's preferences",
}


def model_card(result: Mapping[str, Any], promise: Details) -> str:
    """README.md of the model of the run whose ``result.json`` this is, with ``details`` of what was
    promised."""
    lacking = {"kind": "", "path": "unknown", "train": "head"}
    lacking |= {"as_published": False, "merged": False, "length": "log"}
    told, features = facts(result), {**lacking, **result["features"]}
    path = str(features["path"])
    speaks = features["kind"] in (LANGUAGE_MODEL, HEAD, CLASS)
    adapter = speaks and features["train"] == "lora" and not features["merged"]
    card = _CARD.render(
        told,
        title=_TITLES[told["task"]],
        features=features,
        path=last_name(path).removeprefix("./"),
        language_model=speaks,
        warnings=[without_folders(str(text)) for text in told["warnings"]],
        holds=(
            "the base is an adapter itself, so this folder holds the whole model, merged"
            if features["merged"]
            else "this folder holds these, and needs the base"
        ),
    )
    card = re.sub(r"\s*\n +", " ", card)
    base = hub_name(path)
    # Of lines that are not to be joined.
    card = card.replace("@LOADING@", loading(told["writes"], base=base, adapter=adapter), 1)
    card = card.replace("@PROMISE@", table(promise), 1)
    return _head(told, promise, base, speaks, adapter) + "\n" + card


def _head(told: Mapping[str, Any], promise: Details, base: str, speaks: bool, adapter: bool) -> str:
    private = ["differential-privacy"] if told["level"] in ("user", "item") else []
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
    """What was measured on a public test; None without one."""
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


def _plain(value: object) -> str:
    """A text on one line that cannot start other Markdown or HTML."""
    line = " ".join(str(value).split()).replace("`", "'")
    return line.replace("<", "&lt;")


_JINJA = Environment(
    finalize=_plain,  # of every value, so that none can be forgotten
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_JINJA.filters |= {"share": share_text}
_JINJA.filters |= {"round_digits": round_digits, "count": "{:,}".format, "number": "{:g}".format}
# A line that is indented goes on with the one before.
_CARD = _JINJA.from_string("""\
# {{ title }}

{% if choice %}
It says how likely each next token of a text is, and so can write. Nothing was trained: of
  {{ choice.policies|count }} policies that were there already, and began from the language model
  `{{ path }}`, it is `{{ choice.name }}`, whole (SHA-256 {{ choice.digest }}). A crowd's judgements
  chose it by chance, the likelier the less they lose under it by the loss
  `{{ features.loss }}` (beta {{ features.beta|number }}, r_max {{ features.r_max|number }}). The
  class of policies was committed before: {{ choice["class"] }}.
{% elif writes %}
It says how likely each next token of a text is, and so can write: the language model `{{ path }}`,
  {% if features.train == "full" %}
  all {{ dimension|count }} weights trained.
  {% else %}
  with LoRA of rank {{ features.rank }}, {{ dimension|count }} trained weights; {{ holds }}.
  {% endif %}
  It was trained on
  {% if features.as_published %}
  the chosen responses of their judgements, given the prompts, and no others.
  {% elif task == "text" %}
  users' own texts.
  {% elif task == "policy" %}
  which of a prompt's responses they preferred, by the loss `{{ features.loss }}` (beta
  {{ features.beta|number }}), to say the preferred ones rather than the others; the model that it
  began from is the reference.
  {% else %}
  the responses of their judgements, given the prompts; both of every judgement, whichever was
  chosen.
  {% endif %}
{% else %}
Given a prompt and a response it returns a number: the higher, the more the crowd would like the
  response. Numbers for the same prompt compare; their zero means nothing
  {%- if scores %}, and their differences are {{ scores }}{% endif %}. It is
  {% if not language_model %}
  a linear head of {{ dimension|count }} weights over
  {% if features.kind == "hashing" %}
  hashed word n-grams of the response{% if features.length != "none" %} and its length{% endif %}.
  {% else %}
  frozen features of the encoder `{{ path }}`
  {%- if features.length != "none" %} and the length of the response{% endif %}.
  {% endif %}
  {% else %}
  {% if features.train == "head" %}
  the language model `{{ path }}`, unchanged, with a head of {{ dimension|count }} trained weights.
  {% elif features.train == "full" %}
  the language model `{{ path }}` with a head, all {{ dimension|count }} weights trained.
  {% else %}
  the language model `{{ path }}` with a head and LoRA of rank {{ features.rank }}, together
  {{ dimension|count }} trained weights; {{ holds }}.
  {% endif %}
  {% endif %}
  {% if features.kind == "hashing" %}
  **It does not read the prompt:** a response scores the same after any.
  {% else %}
  It reads the prompt and the response together.
  {% endif %}
{% endif %}

{% if features.get("quantise", "none") != "none" %}
In training its frozen linear layers were kept in {{ features.quantise[0] }} bits a number
  (bitsandbytes). What is saved is for the base as it came, on which it was not trained: what it
  gives there is a little different.

{% endif %}
## Privacy

{% if level == "none" %}
**No privacy.** Exact gradients were used; the weights may reveal {{ words.revealed }}. This model
  is for comparison with private ones.
{% elif level == "claimed" %}
**Nothing proven.** {{ guarantee }}
{% elif level == "item" %}
**ε = {{ epsilon_text }} for
  {{ "" if choice else "the label of " }}each single judgement, not for whole users.**
  {{ guarantee }}
{% else %}
**ε = {{ epsilon_text }}, δ = {{ delta_text }}, at the level of
  {{ "single rows" if one_user_per_row else "whole users" }}, under {{ adjacency }}
  adjacency.** {{ sentence }} The figures cover
  {{ "its one round" if rounds == 1 else "all " ~ rounds|count ~ " rounds together" }}. Spent
  according to the ledger, of a budget of ε = {{ epsilon_target|number }}; composed by privacy loss
  distributions.
{% if stopped %}

Training stopped after {{ rounds|count }} of {{ rounds_planned|count }} planned rounds:
  {{ stopped }}
{% endif %}
{% endif %}
{% for text in warnings %}

> **Warning.** {{ text }}
{% endfor %}
{% if level != "none" %}

@PROMISE@
{% endif %}

## Accuracy

{% if heldout_accuracy is none %}
Not measured.
{% elif not test_is_public %}
{% if next_tokens %}{{ loss_text }}; {% endif %}{{ by_user_text }} of the
  {{ "next tokens guessed right" if next_tokens else judged }}, by user, of
  about {{ heldout_users|count }} users who were not trained on, with a standard error of at most
  {{ error_text }}.
{% elif next_tokens %}
On the {{ words.rows }} of {{ heldout_users|count }} users who were not trained on: {{ loss_text }};
  {{ accuracy_text }} of the next tokens guessed right, {{ by_user_text }} averaged by user.
{% else %}
{{ accuracy_text }} of the {{ judged.partition("; ")[0] if thumbs else "judgements" }} of
  {{ heldout_users|count }} users who were not trained on
  ({{ judged.partition("; ")[2] or "ties left out" }}); {{ by_user_text }} averaged by user, with a
  standard error of at most {{ error_text }}. Guessing would be right
  {{ "half" if heldout_chance in (none, 0.5) else "%.0f %%" % (100 * heldout_chance) }} of the time.
{% endif %}
{% if baselines and baselines.longer_wins is not none %}

On the same public test, always taking the response with more words would be right
  {{ baselines.longer_wins|share }} of the time.
  {% if baselines.near %}
  On its {{ baselines.near.pairs|count }} pairs of nearly equal length (word counts differ by at
  most {{ (100 * baselines.near.within)|number }} % of the larger one) the model is right
  {{ baselines.near.accuracy|share }} of the time, that rule {{ baselines.near.longer_wins|share }}.
  {% endif %}
{% endif %}

## Use

```python
{% if writes %}
from murmuration.preference.language.likelihood import load_scorer
model = load_scorer("path/to/this/folder")
{% else %}
from murmuration import RewardModel
model = RewardModel.load("path/to/this/folder")
{% endif %}
model.score("Spend it or save it?", "Put it aside for now.")
```

or, on the command line, `murmuration score path/to/this/folder --prompt … --response …`
{%- if not language_model %}
. Both come with Murmuration.
{% else %}
: both come with Murmuration, and
  {% if task == "text" %}
  read a prompt and a response together; in training it read texts alone.
  {% else %}
  write texts down as in training.
  {% endif %}
  {% if writes %}
  A score is the response's log-likelihood in nats, given the prompt, its end included.
  {% endif %}

@LOADING@
{% endif %}

## How it was trained

{% if choice %}
One round
{% else %}
{{ rounds|count }} round{{ "" if rounds == 1 else "s" }} of federated gradient descent
{% endif %}
  (strategy `{{ strategy }}`,
  {{ "task" if next_tokens else "model of preferences" }} `{{ task if next_tokens else model }}`)
  over {{ users|count }} users.
  {% if account %}
  {{ account }}
  {% else %}
  {{ cohort|count }} of them were expected in a round, each with the average gradient over at most
  {{ group_size|count }} of their {{ words.examples }}.
  {% if accounted and clip_norm %}
  Each user's vector was clipped to length {{ clip_norm|number }}, and Gaussian noise of
  {{ noise_multiplier|round_digits(3) }} times that length per coordinate was added to their sum.
  {% endif %}
  {% endif %}
  Randomness {{ "was seeded, as in a simulation" if seeded else "came from the operating system" }}.

## Limits

{% if writes %}
- It writes what is likely after what it has read. It does not know what is true, safe or good.
- Its base was trained by somebody on something; that is outside the guarantee given here.
{% else %}
- It knows what this crowd said about the topics it was asked about, and the majority's taste more
  than anybody's own. It does not know what is true, safe or good.
- It is not for judging people, nor for guessing what a particular person prefers.
- Used as the reward in optimization it can be gamed: check what comes out by other means.
{% endif %}
{% if features.kind == "hashing" %}
- It sees words and short phrases, not meaning.
{% endif %}
{% if not language_model and features.length == "bounded" %}
- What it pays for length is bounded: beyond a hundred words it hardly grows.
{% elif not language_model and features.length == "log" %}
- What it pays for length grows without end: whoever optimizes it needs a guard on length.
{% endif %}
{% if accounted %}
- The guarantee does not cover
  {% if test_is_public %}
  test users,
  {% elif heldout_epsilon is none %}
  held-out users,
  {% endif %}
  other runs on the same people, or what the crowd as a whole {{ words.shared }}. It holds as long
  as seeds and sampling coins stay secret.
{% endif %}
""")
