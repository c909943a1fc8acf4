"""All audits in turn, and the page that tells of them."""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any

from murmuration.audits.faults import FAULTS, NEED, Fault
from murmuration.audits.targets import NEED as OF_TARGETS
from murmuration.audits.targets import TARGETS
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.auditing import CONFIDENCE, Target, Task
from murmuration.privacy.mechanisms.randomness import Randomness

# What the page about audits says around its tables.

INTRODUCTION = """\
# Audits

Anybody can print an ε. An audit tries to refute one. It runs the mechanism many times on each of
two neighbouring data sets, the most revealing pair that is known, and an attacker guesses which of
the two it was. The attacker's success gives a *lower* bound on ε, with a stated confidence.

- A lower bound above the claimed ε refutes the claim.
- A lower bound below it proves nothing. But if it is close to the claim, neither the mechanism nor
  the claim can be far off.

([Glossary](glossary.md))

    murmuration audit gaussian                      # one target
    murmuration audit poisson-gaussian --epsilon 4 --adjacency replace --json
    murmuration audit pipeline                      # whole runs, with canary users
    murmuration audit pipeline:policy               # the same for a language model
    murmuration audit --all                         # all of it, and this page

An audit exits with status 1 if it refutes something that is claimed to hold. The trials call the
code that runs use. The claim is what its own ledger was charged."""

READING = """\
## How to read these tables

- **Bounds.** An event (a threshold on the attacker's statistic) is chosen on half of the trials.
  ε ≥ log((P(event) − δ) / P′(event)) is computed on the other half from Clopper–Pearson limits.
  At δ = 1e-5 the event that attains ε is so rare that no number of trials shows it, so bounds
  stay 10 to 40 % below the truth. `--json` also has a Gaussian fit. It is within a few percent if
  the mechanism is a Gaussian, and is no bound for anything else.
- **Adjacencies.** `zero-out` gives a mechanism the same two inputs as `add-remove`, and
  `replace-labels` the same as `replace` (a worst-case label flips a gradient). One of each is
  audited.
- **Pipeline.** Whole runs of `uls`, from a file of judgements to the released model. Every user
  is a canary with two features of their own. *Pooled* bounds take each canary of each run as a
  trial. *One-run* bounds (Steinke, Nasr and Jagielski 2023) assume nothing about how canaries
  depend on each other, and are weaker. The claims are such that an attacker who never errs would
  refute them: 100 guesses that are all right show 2.99, and 10,000 trials on each side 6.85,
  however much leaks. `pipeline:policy` is a run of `--task policy` in which all of a tiny network
  is trained. Each canary has the rows of two words in the head to itself. Canaries share all other
  layers, and move each other through these, so the bounds are of one run.
- **AUP as published.** Under `replace`, the paper's adjacency, each of the three promises that
  its ledger rests on is refuted by experiment. The test costs more than ε/2 (its score moves
  by 2(ñ − 1)/ñ, and its noise is for 1), the mean step costs more than its Gaussian, and the whole
  round costs more than ε. Under `add-remove` all scores move in one direction, and the test's ε/2
  was not refuted; the mean step and the round were. Proofs: [AUP-RLHF](../research/aup.md).
- **Faults.** The bound says what a fault would cost. What prevents a fault by construction (last
  column) does not help against somebody who changes that, too. So each fault has a test as well."""


Row = dict[str, Any]
#: Relations under which neighbouring data sets are the same inputs to a mechanism: one is audited.
_SAME = {Adjacency.ZERO_OUT: Adjacency.ADD_REMOVE, Adjacency.REPLACE_LABELS: Adjacency.REPLACE}


def audit_row(name: str, target: Target, task: Task, seed: int) -> Row:
    """One audit, as it is printed and written."""
    started = time.monotonic()
    measured = target.measure(task)
    return {
        "target": name,
        "adjacency": task.adjacency.value,
        "epsilon_claimed": measured.claimed,
        "epsilon_lower": measured.lower,
        "confidence": task.confidence,
        "trials": measured.trials,
        "verdict": target.verdict(measured),
        "delta": measured.delta,
        "epsilon_gaussian_fit": measured.fit,
        "seed": seed,
        "seconds": round(time.monotonic() - started, 1),
    }


def fault_row(name: str, fault: Fault, seed: int, confidence: float = CONFIDENCE) -> Row:
    """The audit of one seeded fault; ``caught`` or ``missed``."""
    started = time.monotonic()
    task = Task(fault.adjacency, fault.epsilon, fault.trials, Randomness(seed), confidence)
    measured = fault.measure(task)
    return {
        "fault": name,
        "about": fault.about,
        "epsilon_claimed": measured.claimed,
        "epsilon_lower": measured.lower,
        "verdict": "caught" if measured.lower > measured.claimed else "missed",
        "test": fault.test,
        "construction": fault.construction,
        "seconds": round(time.monotonic() - started, 1),
    }


def distinct(target: Target) -> list[Adjacency]:
    """The relations under which the target has claims, one of each two that are audited alike."""
    return [a for a in Adjacency if a in target.adjacencies and not _twin(a, target)]


def _twin(adjacency: Adjacency, target: Target) -> bool:
    return _SAME.get(adjacency) in target.adjacencies


def audit_all(
    seed: int, confidence: float, say: Callable[[Row], None]
) -> tuple[list[Row], list[Row]]:
    """Every target under every distinct relation, then every fault; ``say`` gets each row.

    What an optional library is needed for is left out where that is not installed.
    """
    audits, faults = [], []
    for name, target in TARGETS.items():
        if name in OF_TARGETS and not find_spec(OF_TARGETS[name]):
            continue
        for adjacency in distinct(target):
            source = Randomness(seed)
            task = Task(adjacency, target.epsilon, target.trials, source, confidence)
            audits.append(audit_row(name, target, task, seed))
            say(audits[-1])
    for name, fault in FAULTS.items():
        if name in NEED and not find_spec(NEED[name]):
            continue
        faults.append(fault_row(name, fault, seed, confidence))
        say(faults[-1])
    return audits, faults


def failed(audits: Sequence[Mapping[str, Any]], faults: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of what is claimed sound and is not, and of faults that were missed."""
    broken = [row["target"] for row in audits if row["verdict"] == "violated"]
    return broken + [row["fault"] for row in faults if row["verdict"] == "missed"]


def page(audits: Sequence[Row], faults: Sequence[Row], seed: int, confidence: float) -> str:
    """The Markdown page."""
    seconds = sum(row["seconds"] for row in (*audits, *faults))
    date = datetime.now(UTC).date().isoformat()
    lines = [
        *INTRODUCTION.splitlines(),
        "",
        f"Written by `murmuration audit --all --seed {seed}` on {date} in "
        f"{seconds / 60:.1f} minutes, at {confidence:.0%} confidence for each bound.",
        "",
        "## What is claimed and what can be shown",
        "",
        "| target | adjacency | ε claimed | ε at least | share of claim | δ | trials | verdict |",
        "|---|---|---|---|---|---|---|---|",
        *(_audit_line(row) for row in audits),
        "",
        *_about_targets(),
        "",
        "## Seeded faults",
        "",
        "Each fault was put into the correct code, which was then audited against the correct "
        "claim. The test fails when the fault is put in. The last column says what else prevents "
        "the fault.",
        "",
        "| fault | ε claimed | ε at least | audit | test | construction |",
        "|---|---|---|---|---|---|",
        *(_fault_line(row) for row in faults),
        "",
        *READING.splitlines(),
        "",
    ]
    return "\n".join(lines)


def _audit_line(row: Row) -> str:
    share = row["epsilon_lower"] / row["epsilon_claimed"]
    return (
        f"| `{row['target']}` | {row['adjacency']} | {row['epsilon_claimed']:.3g} | "
        f"{row['epsilon_lower']:.3g} | {share:.0%} | {row['delta']:g} | {row['trials']:,} | "
        f"{row['verdict']} |"
    )


def _fault_line(row: Row) -> str:
    return (
        f"| {row['about']} | {row['epsilon_claimed']:.3g} | {row['epsilon_lower']:.3g} | "
        f"{row['verdict']} | `{row['test']}` | {row['construction'] or '–'} |"
    )


def _about_targets() -> list[str]:
    return [f"- `{name}`: {target.about}." for name, target in TARGETS.items()]
