"""Reports for a client's owner: the data here, what will leave the machine, and what has left.

Nobody is asked for anything, but by ``server_line``.
"""

import contextlib
import os
from dataclasses import fields
from pathlib import Path

from murmuration.client.agent.identity import Identity
from murmuration.client.agent.ledger import OwnLedger
from murmuration.client.agent.policy import Policy
from murmuration.client.labels.memory import LabelState
from murmuration.client.store import load_judged, place_of
from murmuration.deploy.certificates import days_left
from murmuration.deploy.client import Client, server_certificate
from murmuration.deploy.handed_over import AUTHORITY
from murmuration.deploy.plan import compared, own_ledger
from murmuration.deploy.processes import check_own, state_beside
from murmuration.deploy.terms import RUN
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.schema import PAIRS, Schema
from murmuration.preference.escaping import escaped
from murmuration.privacy import extensions
from murmuration.privacy.figures import counted
from murmuration.strategies import registry
from murmuration.strategies.protocol.stated_plan import cost
from murmuration.strategies.solved.local_label import LOCAL_LABEL

_DIMENSION = 1025  # of the default features, for the sizes that are shown


def report(
    client: Client, data: Path, columns: str, schema: Schema = PAIRS, *, ask_server: bool
) -> tuple[str, bool]:
    """Return all that there is to say, and whether the policy allows the operator's run.

    With ``ask_server`` the server is asked for its certificate.

    Raises:
        InputError: the data cannot be used, or the own ledger is damaged.
    """
    judgements, lines, allowed = checks(client, data, columns, schema)
    if ask_server:
        lines.append(server_line(client))
    lines += ["", *describe(client, judgements), "", *rules(client.policy), "", *spent(client), ""]
    return "\n".join(map(escaped, lines)), allowed  # paths and rules may hold ends of lines


def describe(client: Client, judgements: Judgements) -> list[str]:
    """Exactly what can leave this machine, in lines."""
    policy, users = client.policy, len(judgements.user_ids)
    lines = [
        f"{counted(len(judgements), 'judgement')} of {counted(users, 'user')} stay here. "
        "What leaves:",
        "",
        "whatever is asked",
        "  a 64-bit name of each user, different in every run (who guesses an id can test it)",
    ]
    if users > client.users:
        lines.insert(
            1,
            f"Registered here is a client of {client.users}: of so many users, whom the server "
            "picks, answers count, and of the others none. Ask its owner to register more.",
        )
    if policy.public_items:
        lines.append("  prompts, responses and how many there are, without labels: public_items")
    if policy.label_epsilon:
        lines += [
            "",
            LOCAL_LABEL.name,
            f"  every label once, randomized here: epsilon {policy.label_epsilon:g} for all labels "
            "of a user together"
            + (f", delta {policy.label_delta:g}" if policy.label_delta else "")
            + " (really spent here)",
            "  nothing else that depends on labels",
        ]
    names = sorted(registry.allowable())
    for name in policy.strategies:
        lines += ["", name, *_leaves(name, policy)]
    others = ", ".join(name for name in names if name not in policy.strategies)
    lines += ["", others, "  nothing: not among the policy's strategies"]
    if policy.max_evaluations:
        right = "right and how large its losses are" if "sft" in policy.tasks else "right"
        lines += [
            "",
            "evaluation",
            f"  at most {policy.max_evaluations} sums of how often a given model is {right}, over",
            "  users whom that run does not train on (checked here); the server adds the noise",
        ]
    lines += ["", "never: a judgement, a gradient that is not clipped, anything not listed here"]
    return lines


def rules(policy: Policy) -> list[str]:
    """Return every rule of the policy as it holds, those that the file leaves out included."""
    values = {field.name: getattr(policy, field.name) for field in fields(policy)}
    width = max(map(len, values))
    shown = {
        name: ", ".join(value) or "none" if isinstance(value, tuple) else f"{value}"
        for name, value in values.items()
    }
    result = [f"  {name:<{width}}  {value}" for name, value in shown.items()]
    code = [f"warning   code of others runs here: extensions {shown['extensions']}"]
    return ["its rules:", *result, *(code if policy.extensions else [])]


def spent(client: Client) -> list[str]:
    """The answers that have left this machine so far, in lines, and the ε of ledgers beside it;
    InputError if its ledger is damaged."""
    policy = client.policy
    with extensions.only(policy.extensions):
        ledger = own_ledger(client.state)
        others = _ledgers_beside(client)
    beside = _all_together([ledger, *others.values()], list(others), policy) if others else []
    if not ledger.head.hash:
        return ["So far nothing has left.", *beside]
    result = [
        f"So far: {ledger.answered['train']} of {policy.max_rounds} answers, "
        f"{ledger.answered['evaluate']} of {policy.max_evaluations} accuracies."
    ]
    if ledger.plans:
        epsilon = cost(list(ledger.plans.values()), policy.delta)
        result.append(
            f"{len(ledger.plans)} stated plans, together epsilon {epsilon:.4g} of "
            f"{policy.max_epsilon:g} at delta {policy.delta:g}."
        )
    labels = client.state / "labels.state"
    for spend in LabelState(labels).spends() if labels.exists() else []:
        result.append(
            f"{spend.user_id}: {len(spend.items)} labels told, epsilon {spend.epsilon:.4g} of "
            f"{spend.promise.epsilon:g}."
        )
    return [*result, *beside]


def _ledgers_beside(client: Client) -> dict[Path, OwnLedger]:
    """Return this account's ledgers of other folders than the client's, by which something left."""
    parents = {client.folder.parent, client.state.parent}
    places = {place for parent in parents for place in parent.glob(state_beside(Path("*")).name)}
    ledgers = {}
    for place in sorted(places - {client.state}):
        with contextlib.suppress(InputError):  # another account's, say, or damaged
            check_own(place)
            ledger = own_ledger(place)
            if ledger.answered or ledger.plans:
                ledgers[place] = ledger
    return ledgers


def _all_together(ledgers: list[OwnLedger], beside: list[Path], policy: Policy) -> list[str]:
    """A warning that each folder has a ledger of its own, and that no rule adds them up."""
    plans = [plan for ledger in ledgers for plan in ledger.plans.values()]
    try:
        epsilon = f"epsilon {cost(plans, policy.delta):.4g} at delta {policy.delta:g}"
    except ValueError as error:
        epsilon = f"no epsilon: {error}"
    answers = sum(ledger.answered["train"] for ledger in ledgers)
    return [
        f"warning   {', '.join(map(str, beside))}: answers by other folders are noted there, and "
        f"no rule of this one counts them. All together: {counted(answers, 'answer')}, "
        f"{counted(len(plans), 'stated plan')}, {epsilon}."
    ]


def _leaves(name: str, policy: Policy) -> list[str]:
    half = policy.node_halves[policy.halves[name]]
    of_what = "clip norm × judgements counted" if half.of_examples else "its clip norm"
    many = f"at most {policy.max_group_size} judgements" if policy.max_group_size else "all"
    return [
        f"  at most {policy.max_rounds} answers in all, each one vector of D numbers (8·D bytes; "
        f"{8 * _DIMENSION / 1000:.0f} kB at D = {_DIMENSION}):",
        "  the sum over your asked users of what their judgements say about a model,",
        f"  each user's part ({many}) no longer than {policy.max_clip:g} ({of_what})",
        *(["  and how many of these are within a radius"] if half.counts else []),
        "  before noise: the server adds it. It states a plan, which is kept here; plans that",
        f"  cost more than epsilon {policy.max_epsilon:g} at delta {policy.delta:g} under "
        f"{policy.adjacency}, all together, are refused",
        *([f"  never over fewer than {policy.min_users} of them"] if policy.min_users else []),
        *(["  under the masks of secure aggregation only"] if policy.secure_only else []),
    ]


def checks(
    client: Client,
    data: Path,
    columns: str,
    schema: Schema = PAIRS,
) -> tuple[Judgements, list[str], bool]:
    """The judgements, what was found, and whether the policy allows the run that the operator
    means to make. Nobody is asked for anything: nothing here touches the network.

    Raises:
        InputError: the data cannot be used.
    """
    judgements = load_judged(str(data.expanduser().absolute()), columns, "isolate", schema)
    folder = client.handed_over
    trusted = "which you know" if client.known else "compare it with what the operator tells you"
    result = [
        f"data      {data}: {counted(len(judgements), 'judgement')}, "
        f"{counted(len(judgements.user_ids), 'user')}",
        f"folder    as signed by {folder.fingerprint}: {trusted}",
        *(f"note      {name} is not as it was handed over" for name in folder.changed),
        f"yours     {client.state}: "
        + ("in use before" if client.state.exists() else "made at the first start"),
        f"key       node.key, private to you; its public half must be registered as {client.name}",
        f"policy    policy.toml: strategies {', '.join(client.policy.strategies) or 'none'}",
    ]
    try:
        users = len(judgements.user_ids)
        verdict, allowed = compared(client.folder / RUN, client.policy, client.state, hosted=users)
    except InputError as error:
        verdict, allowed = f"cannot be compared with the policy: {error}", False
    result.append(f"run       {verdict}")
    result += [f"note      {note}" for note in judgements.notes]
    if judgements.left_out:
        rows, first = counted(judgements.left_out, "row"), place_of(judgements.set_aside[0])
        result.append(
            f"warning   {rows} cannot be used, the first: {first} (`murmuration data` says why)"
        )
    if (identity := client.state / "identity.key").exists():
        name = Identity.at(identity).public.hex()
        result.append(f"agent     {name}: other owners can list it among their parties")
    accounts = {path.stat().st_uid for path in (client.folder, *client.folder.iterdir())}
    if others := sorted(accounts - {0, os.geteuid()}):
        result.append(
            f"warning   {client.folder} is in part of other accounts (uid "
            f"{', '.join(map(str, others))}), who can change it: chown -R it, if none is yours"
        )
    if data.expanduser().stat().st_mode & 0o077:
        result.append(f"warning   other users of this machine can read {data}: chmod 600 it")
    return judgements, result, allowed


def server_line(client: Client) -> str:
    """A line about the server, which is asked for its certificate."""
    try:
        certificate = server_certificate(client.address, client.folder / AUTHORITY)
    except InputError as error:
        return f"server    {error}"
    left = days_left(certificate)
    return f"server    {client.address}: certificate signed by ca.crt, {left} days left"
