"""The release of a search: its winner's model, figures, card and page, with its promise."""

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from murmuration.preference.choices import of_rows
from murmuration.preference.language.checkpoint import weights_digest
from murmuration.privacy import attack_bounds
from murmuration.privacy.accounting import second_opinion
from murmuration.privacy.accounting.ledger import Ledger, read_account
from murmuration.privacy.disclosure import Disclosure
from murmuration.privacy.promise import Promise, ReleasedRun
from murmuration.reporting.run_end import RunReport
from murmuration.server.run_files import read_json
from murmuration.server.run_folder import RunFolder
from murmuration.sims.runtimes.shown_prompts import PLACE
from murmuration.strategies.config import RunConfig
from murmuration.strategies.spec import promise as guarantee_of

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
    names = ("features", "warnings", "account", "heldout_accuracy")
    theirs = Disclosure.read(read_json(candidate / "result.json", *names))
    spent = ledger.spent().items()
    epsilon, terms = ledger.epsilon(), {"adjacency": ledger.adjacency, "delta": ledger.delta}
    attack = attack_bounds.of_run(spent, epsilon=epsilon, **terms)
    own = Promise((ReleasedRun.read(ledger.path),))
    guarantee, computed = guarantee_of(config), ledger.released
    account_of_search = (
        f"The best of a secret random number of runs, {figures['expected_runs']:.3g} on average, "
        "was released, by a private score; settings were drawn from a public grid of "
        f"{figures['settings']}. Nothing of the others was. Of the run that was released: "
        f"{theirs['account']}"
    )
    first = _BY_CHANCE if theirs["heldout_accuracy"] is None else _TOO_GOOD
    result = theirs
    result.update(
        {
            "run": computed(ledger.terms.run),
            "epsilon_target": computed(config.epsilon),
            "delta": computed(ledger.delta),
            "epsilon": computed(epsilon),
            "epsilon_against_server": computed(None),
            "attack": computed(dataclasses.asdict(attack)),
            "second_opinion": computed(second_opinion.of_run(spent, **terms).to_json()),
            "ledger_head": computed(str(ledger.head)),
            "guarantee": computed(of_rows(guarantee) if config.one_user_per_row else guarantee),
            "account": computed(account_of_search),
            "warnings": computed([first, *theirs["warnings"]]),
            "promise": computed(own.to_json()),
            "private": computed(own.private),
            "out": computed(str(folder.path)),
            "search": computed(dict(figures)),
        }
    )
    report = RunReport(config, own, result)
    _put(candidate / "model", folder.path / "model", report.card())
    result["weights"] = computed(weights_digest(folder.path / "model"))
    if (candidate / PLACE).exists():
        shutil.copy(candidate / PLACE, folder.path / PLACE)
    report.write(folder.path, [])
    folder.write_json("result.json", result)
    return dict(result)


def _put(model: Path, place: Path, card: str) -> None:
    """Copy a model, with a card of its own; files have the time at which it is copied."""
    new = place.with_name(f".{place.name}.new")
    for old in (new, place):  # of a search that was interrupted here
        if old.exists():
            shutil.rmtree(old)
    shutil.copytree(model, new, copy_function=shutil.copyfile)
    (new / "README.md").write_text(card.rstrip("\n") + "\n", encoding="utf-8")
    new.rename(place)
