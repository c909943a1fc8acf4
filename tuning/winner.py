"""The release of a search: its winner's model, figures, card and page, with its promise."""

import dataclasses
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from murmuration.preference.language.checkpoint import weights_digest
from murmuration.privacy import attack_bounds
from murmuration.privacy.accounting import second_opinion
from murmuration.privacy.accounting.ledger import Ledger, read_account
from murmuration.privacy.promise import Promise, ReleasedRun
from murmuration.privacy.theorems import Mechanism, select
from murmuration.reporting.run_end import RunReport
from murmuration.server.record.result import Result
from murmuration.server.record.run_folder import RunFolder
from murmuration.sims.runtimes.shown_prompts import PLACE
from murmuration.strategies.config import RunConfig

_TOO_GOOD = (
    "THE BEST OF SEVERAL was chosen by this held-out accuracy, noise included: on other people it "
    "is lower, on average."
)
_BY_CHANCE = (
    "CHOSEN BY CHANCE: noise drowned the score of every candidate. Hold out more users, allow a "
    "larger epsilon, or expect fewer runs."
)


def release(
    folder: RunFolder,
    candidate: Path,
    ledger: Ledger,
    config: RunConfig,
    figures: Mapping[str, Any],
) -> dict[str, Any]:
    """Write the winner of a search, which ran in ``candidate``; its result.

    The ledger is told first: a copy of the folder that ends, too, releases another model.

    Args:
        folder: of the search, open.
        candidate: the winner's own folder.
        ledger: of the search.
        config: its settings, with the whole budget.
        figures: what is public of the search, and which setting won.
    """
    account, _ = read_account(candidate / "ledger.jsonl")
    for caveat in sorted(account.terms.caveats):
        ledger.note(caveat)
    ledger.note_published()
    theirs = Result.read(candidate)
    assert theirs is not None  # the candidate has ended
    spent = ledger.spent().items()
    epsilon, terms = ledger.epsilon(), {"adjacency": ledger.adjacency, "delta": ledger.delta}
    attack = attack_bounds.of_run(spent, epsilon=epsilon, **terms)
    own = Promise((ReleasedRun.read(ledger.path),))
    first = _BY_CHANCE if theirs.heldout_accuracy is None else _TOO_GOOD
    result = replace(
        theirs,
        run=ledger.terms.run,
        epsilon_target=config.epsilon,
        delta=ledger.delta,
        epsilon=epsilon,
        epsilon_against_server=None,
        attack=dataclasses.asdict(attack),
        second_opinion=second_opinion.of_run(spent, **terms).to_json(),
        ledger_head=str(ledger.head),
        warnings=[first, *theirs.warnings],
        promise=own.to_json(),
        theorem=theirs.theorem | _of_the_choice(theirs.theorem),
        private=own.private,
        out=str(folder.path),
        outcome={**theirs.outcome, "search": dict(figures)},
    )
    report = RunReport(config, own, result)
    _put(candidate / "model", folder.path / "model", report.card())
    result = replace(result, weights=weights_digest(folder.path / "model"))
    if (candidate / PLACE).exists():
        shutil.copy(candidate / PLACE, folder.path / PLACE)
    report.write(folder.path, [])
    folder.write_result(result)
    return result.to_json()


def _put(model: Path, place: Path, card: str) -> None:
    """Copy a model, with a card of its own; files have the time at which it is copied."""
    new = place.with_name(f".{place.name}.new")
    for old in (new, place):  # of a search that was interrupted here
        if old.exists():
            shutil.rmtree(old)
    shutil.copytree(model, new, copy_function=shutil.copyfile)
    (new / "README.md").write_text(card.rstrip("\n") + "\n", encoding="utf-8")
    new.rename(place)


def _of_the_choice(theorem: Mapping[str, str]) -> dict[str, str]:
    """The statement about a candidate, with that about releasing the best of them."""
    (stopping,) = select(Mechanism.RANDOM_STOPPING)
    return {
        "says": f"{theorem['says']} {stopping.says}",
        "source": f"{theorem['source']}; {stopping.source}",
    }
