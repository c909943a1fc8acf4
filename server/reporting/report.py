"""The report of a run: what may be claimed, at what cost, and what may not.

Decisions:
- The claim comes first, in words, with the adjacency it is made under; warnings come before any
  figure that they qualify.
- It is written from ``result.json`` and ``metrics.jsonl`` alone, so it shows nothing that those do
  not, and it leaves out the path of the folder, since a report is passed on.
- Figures are rounded to what they can carry, epsilon always upwards.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.durable_files import replace_file
from murmuration.server.reporting import html, plots
from murmuration.server.reporting.figures import (
    about,
    delta_text,
    duration,
    epsilon_text,
    in_words,
    loss_text,
    points_of_error,
    revealed,
    rows_of,
    says_next_tokens,
    share_text,
    shared,
    task_of,
)

# What a report says about users who were not trained on: figures, and how to read their curve.

Result = Mapping[str, Any]


def heldout_rows(result: Result) -> list[html.Row]:
    """Rows for the table of figures."""
    pooled, by_user = result["heldout_accuracy"], result["heldout_accuracy_by_user"]
    users = result["heldout_users"]
    if pooled is None:
        return [("Held-out accuracy", "not measured", why_not(result))]
    error = f"standard error at most {error_words(result)}"
    who = f"of {users:,} users who were not trained on"
    next_tokens = says_next_tokens(result)
    if result["test_is_public"]:
        what = "of the tokens " + who if next_tokens else f"of the judgements {who}; ties left out"
        shown = [share_text(pooled, users), f"{what}{chance_words(result)}"]
        averaged = [("the same, averaged by user", share_text(by_user, users), error)]
    else:
        about = f"by user, of about {users:,} who were not trained on; {error}"
        shown, averaged = [share_text(by_user, users), f"{about}{chance_words(result)}"], []
    if not next_tokens:
        return [("Held-out accuracy", shown[0], shown[1]), *averaged]
    loss = "The mean over tokens of −log of the probability that the right one was given."
    if (noise := result.get("heldout_loss_noise")) is not None:
        loss += f" By user; with noise of {noise:.2g}."
    return [
        ("Held-out loss", loss_text(result), loss),
        ("Next tokens guessed right", shown[0], shown[1]),
        *averaged,
    ]


def error_words(result: Result) -> str:
    """The standard error of the accuracy by user, and how it came by noise."""
    error = f"{points_of_error(result.get('heldout_error'))} points"
    if result["test_is_public"]:
        return error
    if result.get("heldout_noise") is None:
        told = " (exact: outside the guarantee)" if result["private"] else ""
        return error + told
    return f"{error}, {points_of_error(result['heldout_noise'])} of them noise"


def chance_words(result: Result) -> str:
    """What guessing comes to, where that is known."""
    chance = result.get("heldout_chance")
    known = chance is not None and not says_next_tokens(result)
    return f"; guessing comes to {share_text(chance)}" if known else ""


def why_not(result: Result) -> str:
    """Why there is no accuracy."""
    if result.get("heldout_epsilon") is None:
        return "No held-out user could be asked."
    return (
        f"Too few users for noise at ε = {result['heldout_epsilon']:g}, or telling it again after "
        "a crash would have cost more than the budget."
    )


def accuracy_words(result: Result) -> tuple[str, str]:
    """What the plot of accuracy shows, for who cannot see it, and how to read it."""
    told = (
        "How often the likeliest next token is the one that a held-out user's text has."
        if says_next_tokens(result)
        else "How often the model prefers the response that a held-out user preferred."
    )
    measured = (
        f"{told} A curve that has gone flat will gain little from more rounds; one that falls is "
        "losing to noise, or its steps are too long."
        if result["test_is_public"]
        else "Held-out accuracy, measured once, after the last round, since every further "
        "figure about the held-out users would be one more release."
    )
    if not result["private"]:
        return "Held-out accuracy over rounds", measured
    return (
        "Held-out accuracy over rounds, and epsilon spent so far",
        f"Top: {measured[0].lower()}{measured[1:]} Bottom: ε so far. It grows fast at first and "
        "slower later, so stopping a run early saves less than it seems.",
    )


def write_report(folder: Path, result: Result, metrics: Sequence[Mapping[str, Any]]) -> Path:
    """Write ``plots/accuracy.png``, ``plots/noise.png`` and ``report.html``; returns the last.

    Args:
        folder: the run directory.
        result: the figures of ``result.json``.
        metrics: the lines of ``metrics.jsonl``, in order of rounds; may be empty.
    """
    folder = Path(folder)
    (folder / "plots").mkdir(parents=True, exist_ok=True)
    figures = []
    for name, draw, text, caption in (
        ("accuracy.png", plots.accuracy_plot, *accuracy_words(result)),
        ("noise.png", plots.noise_plot, *_noise_words(result)),
    ):
        light = draw(result, metrics, plots.LIGHT)
        replace_file(folder / "plots" / name, light)
        figures.append(html.figure(light, draw(result, metrics, plots.DARK), text, caption))
    title = headline(result)
    body = [
        html.paragraph("Murmuration · report of a run", "eyebrow"),
        html.title(title),
        *(html.paragraph(text, "lead") for text in claim(result)),
        html.warning_box(
            "This run stopped early", [result["stopped"]] if result["stopped"] else []
        ),
        html.warning_box("Before you rely on this", result["warnings"]),
        html.heading("Figures"),
        html.table(_figures(result)),
        html.heading("Over the rounds"),
        *figures,
        html.heading("How epsilon was computed"),
        *(html.paragraph(text) for text in _accounting(result)),
        html.heading("What is not covered"),
        html.bullets(_limits(result)),
        html.heading("Settings"),
        html.table(_settings(result)),
        html.footer(
            "Exact figures stand in result.json, the settings in config.json, every release in "
            "ledger.jsonl."
        ),
    ]
    path = folder / "report.html"
    replace_file(path, html.page(title, body).encode())
    return path


def headline(result: Result) -> str:
    """The claim in a few words."""
    if not result["private"]:
        return "No privacy: a non-private run"
    epsilon, delta = epsilon_text(result["epsilon"]), delta_text(result["delta"])
    if not result.get("proven", True):
        return f"ε = {epsilon} claimed at δ = {delta}, not proven"
    if result.get("privacy_level") == "item":
        return f"ε = {epsilon} for single judgements, not for whole users"
    return f"ε = {epsilon} for whole users, at δ = {delta}"


def claim(result: Result) -> list[str]:
    """The claim in sentences, one list item a paragraph."""
    if not result["private"]:
        return [
            result["guarantee"],
            f"The model may reveal {revealed(task_of(result))}. It exists to be compared with "
            "private runs; do not release it where that matters.",
        ]
    guarantee = result["guarantee"]
    sentence = in_words(Adjacency(result["adjacency"]).sentence, task_of(result))
    if sentence not in guarantee:
        guarantee = f"{guarantee} {sentence}"
    if not result.get("proven", True):
        return [
            guarantee,
            "The figures below repeat that claim. Treat the model as one without protection.",
        ]
    e = result["epsilon"]
    if result.get("privacy_level") == "item":
        return [
            result["guarantee"],
            "Read it so: a user who gave k judgements has spent up to k times this ε on them "
            "together. That is what the ledger counts, for the user with the most judgements.",
        ]
    factor = f"e^{epsilon_text(e)}" + (f", about {about(2.718281828**e)}," if e < 20 else "")
    return [
        guarantee,
        f"Read it so: whatever one looks for in what this run released, it is at most {factor} "
        "times as likely with one of two neighbouring data sets as with the other, plus at most "
        f"{delta_text(result['delta'])}. This holds for all rounds' models taken together, "
        "whatever else is known, and for anything that is computed from them later.",
    ]


def _figures(result: Result) -> list[html.Row]:
    done, planned = result["rounds"], result["rounds_planned"]
    rows: list[html.Row] = []
    if result["private"]:
        target = result["epsilon_target"]
        rows += [
            ("Privacy spent, ε", epsilon_text(result["epsilon"]), f"of a budget of {target:g}"),
            *_seen_by_server(result),
            ("Failure allowance, δ", delta_text(result["delta"]), ""),
            ("Adjacency", result["adjacency"], ""),
        ]
    else:
        rows.append(("Privacy", "none", ""))
    speed = result["users_per_second"]
    pace = f"{about(speed)} users a second" if speed else ""
    return [
        *rows,
        *heldout_rows(result),
        ("Users trained on", f"{result['users']:,}", f"{result['cohort']:,} expected in a round"),
        ("Rounds", f"{done:,}", f"of {planned:,} planned" if done != planned else ""),
        ("Time in rounds", duration(result["seconds_training"]), pace),
    ]


def _seen_by_server(result: Result) -> list[html.Row]:
    epsilon, parties = result.get("epsilon_against_server"), result.get("noise_parties")
    if epsilon is None:
        return []
    who = f"if {parties} of the nodes in each sum add their noise"
    return [("ε against the server itself", epsilon_text(epsilon), who)]


def _noise_words(result: Result) -> tuple[str, str]:
    if not result["private"]:
        return "Length of the update in each round", "Length of each round's averaged gradient."
    return (
        "Length of signal and noise in each round's update",
        "The length of the noise in each round's update, and an estimate of what is left without "
        "it; dots are single rounds. Noise points elsewhere every round and averages out, while "
        "the signal adds up, so learning works with the signal well below the noise, just slower. "
        "Where the signal cannot be told from noise its line is missing: such rounds teach little. "
        "A larger cohort or more users lower the noise; more rounds at the same ε raise it.",
    )


def _accounting(result: Result) -> list[str]:
    if not result["private"]:
        return ["There is none: exact gradients were released, and no epsilon covers them."]
    texts = [
        "Every release was written to the ledger before its noisy value left memory, so a crash "
        "can only make the ledger show more than was released. Epsilon is the composition of the "
        "ledger's entries by privacy loss distributions (the dp-accounting library, with a "
        "discretization that errs towards a larger epsilon), under the adjacency named above. It "
        "is rounded up here.",
    ]
    if result.get("account"):
        texts.insert(0, result["account"])
    return texts


_TRUST_IN_NODES = (
    "Each user's own node is trusted to toss its coins and to keep what it told. The server sees "
    "no true label of those trained on."
)


def _limits(result: Result) -> list[str]:
    if not result["private"]:
        return ["Everything: no user of this run is protected."]
    held_out = (
        "The test file was declared public; the people in it are not protected."
        if result["test_is_public"]
        else "Held-out users are protected as those trained on are: what is said of them has noise "
        f"at ε = {result['heldout_epsilon']:g}, which is part of the total."
        if result.get("heldout_epsilon") is not None
        else "OUTSIDE THE GUARANTEE: the accuracy on held-out users is an exact figure about their "
        f"{rows_of(task_of(result))}."
    )
    coins = "The seed" if result["seeded"] else "The generator's state"
    return [
        held_out,
        f"{coins}, the coins that decided who took part, and the lists of participants must stay "
        "secret: whoever knows them can undo part of the protection or all of it.",
        "The folder private/ depends on data outside the accounting. It must not be released.",
        _TRUST_IN_NODES
        if result["strategy"] == "local-label"
        else "The server is trusted: it sees sums before noise is added. So are the nodes, which "
        "clip."
        if not result.get("secure_aggregation")
        else "The server is trusted to follow the protocol of secure aggregation, and to toss the "
        "coins that decide who is in a round. It saw no sum without the noise that the nodes add: "
        "what it learnt itself is ε against the server, above, if at least "
        f"{result['noise_parties']} of the nodes in each sum added theirs. The nodes are trusted "
        "to clip: under masks nobody can check."
        if result.get("noise_parties")
        else "The server is trusted to follow the protocol of secure aggregation: then it sees, "
        "before noise is added, the sum over all nodes of a round and no node's own, unless it is "
        "in league with more than two thirds of them. The nodes are trusted to clip: under masks "
        "nobody can check.",
        "Running times, here and in the ledger, are measured and not accounted for.",
        "Other runs on the same people: epsilons add up, and choosing the best of several runs is "
        "a release of each of them.",
        f"What the crowd as a whole {shared(task_of(result))}. Learning that is the purpose, and "
        "it may well say something about a person of whom one knows enough.",
    ]


def _settings(result: Result) -> list[html.Row]:
    features = dict(result["features"])
    kind = str(features.pop("kind", "unknown"))
    details = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in features.items())
    rows: list[html.Row] = [("Strategy", result["strategy"], "")]
    if says_next_tokens(result):
        rows.append(("Task", task_of(result), "The model says the next token."))
    else:
        rows.append(("Model of preferences", result.get("model", "btl"), ""))
    if result["private"]:
        rows += [
            ("Noise multiplier", about(result["noise_multiplier"], 4), ""),
            ("Clip norm", f"{result['clip_norm']:g}" if result["clip_norm"] else "none", ""),
        ]
    return [
        *rows,
        (
            f"{rows_of(task_of(result)).capitalize()} of a user in a round",
            f"at most {result['group_size']:,}",
            "A long text counts once for each of its windows." if task_of(result) == "text" else "",
        ),
        ("Expected cohort", f"{result['cohort']:,} of {result['users']:,} users", ""),
        ("Features", kind, details),
        ("Weights", f"{result['dimension']:,}", ""),
        (
            "Learning rate at its peak",
            about(result["learning_rate"], 3) if result["learning_rate"] else "none",
            "" if result["learning_rate"] else "The model was solved for, not trained.",
        ),
        *_noise_kind(result),
        *_isolation(result),
        (
            "Randomness",
            "seeded" if result["seeded"] else "from the operating system",
            "A simulation that can be repeated." if result["seeded"] else "",
        ),
    ]


def _isolation(result: Result) -> list[html.Row]:
    how = result.get("user_isolation")
    if not how:
        return []
    why = (
        "Users were computed together, where last digits depend on who is beside: measured, not "
        "proven, and no part of epsilon."
        if how == "empirical"
        else "A user's vector is computed from that user's data and public numbers alone, and sums "
        "are exact."
    )
    return [("Isolation of users from each other", how, why)]


def _noise_kind(result: Result) -> list[html.Row]:
    if result.get("noise") == "discrete":
        return [
            (
                "Noise",
                "discrete Gaussian",
                "Whole numbers on a grid of less than 2⁻²⁷ clip norms, drawn exactly; charged as "
                "the continuous Gaussian and what the two can differ by.",
            )
        ]
    if result.get("noise") == "distributed":
        return [
            (
                "Noise",
                "discrete Gaussian, in shares",
                f"Every registered node adds one of {result['noise_parties']} shares to its sum in "
                "every round, in whole numbers, before it masks it.",
            )
        ]
    if result.get("noise") == "randomized-response":
        return [("Noise", "randomized response", "Labels by coins of whole numbers; no sums.")]
    return [("Noise", "Gaussian, floating point", "")] if result["private"] else []
