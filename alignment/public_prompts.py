"""Prompts that policies are aligned with, which must be public.

A reward that a private run released may be used for ever. That holds of the reward: prompts that
users were shown are their data, and what a policy answers to them, or rows that have them, is
no post-processing. So they are refused where they can be recognised: beside a run's model lies, in
a simulation, what its users were shown (``sims.runtimes.shown_prompts``).

Such a file is refused, and not filtered: what is left out silently would make all that follows, the
policy, the answers, depend on private data, and a comparison with the file would reveal which
prompts were users'. The comparison is exact and charged to no ledger: a refusal states the number
of such prompts and their place, to the operator only, who holds the run's folder. (The output
itself reveals that nothing was refused. To avoid that, declare the prompts public beforehand: then
nothing is compared.) It recognises a prompt by its letters and digits; one that was worded
otherwise is not recognised.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from murmuration.preference.data.errors import InputError
from murmuration.preference.language.checkpoint import chain_of
from murmuration.privacy.disclosure import OperatorOnly
from murmuration.sims.population.prompts import is_public, prompts_of
from murmuration.sims.runtimes.shown_prompts import shown

DECLARE = "--prompts-public"


def public_prompts(
    source: str,
    limit: int | None,
    seed: int,
    models: Sequence[str | Path] = (),
    *,
    declared_public: bool = False,
) -> list[str]:
    """The prompts of a file or of the embedded population, if no user was shown them.

    Args:
        source: as ``--prompts`` of ``murmuration respond``.
        limit: the number of prompts, from the first; None: all of a file, 2,000 of the population.
        seed: of the population's.
        models: rewards and policies, as in RUN/model, whose users' prompts they must not be, nor
            those of the models that they are adapters of.
        declared_public: whether they are declared to have been public before any user saw them;
            then nothing is compared.

    Raises:
        InputError: they cannot be read, or as of ``refuse_private``.
    """
    prompts = prompts_of(source, limit, seed)
    refuse_private_of(prompts, source, models, declared_public)
    return prompts


def refuse_private_of(
    prompts: Sequence[str],
    source: str,
    models: Sequence[str | Path],
    declared_public: bool = False,
    *,
    option: str = "--prompts",
) -> None:
    """`refuse_private` for some models and those that they are adapters of."""
    for model in models:
        for each in _with_what_it_is_on(model):
            refuse_private(prompts, source, each, declared_public, option=option)


def _with_what_it_is_on(model: str | Path) -> Iterator[str | Path]:
    """A model and, where it is an adapter, those that it is put on: their runs had users, too."""
    yield model
    if (folder := Path(model).expanduser()).is_dir():
        yield from (path for path, _ in islice(chain_of(str(folder)), 1, None))


def refuse_private(
    prompts: Sequence[str],
    source: str,
    model: str | Path,
    declared_public: bool = False,
    *,
    option: str = "--prompts",
) -> bool:
    """Refuse prompts that users of a model's run were shown; returns whether any were compared.

    They are not compared if the run's folder is not available (a model that was copied, or has a
    name on a hub), or was a deployment's, whose server sees no prompts.

    Raises:
        InputError: prompts were shown to users: the message has their number and the first one's
            row, never a text; or the run has not ended, so that its users' prompts are not recorded
            yet.
    """
    # Those of the population come from a public stream of their own, drawn apart from what users
    # were shown. There are so few wordings that one may be there, too, by chance: it tells nothing.
    # The list of questions was in the package before any user saw one of them.
    if declared_public or is_public(source):
        return False
    run = Path(model).expanduser().resolve().parent
    result = shown(run, prompts)
    if result:
        told = OperatorOnly(
            f"{len(result):,} of {len(prompts):,} are prompts that users of the run in {run} were "
            f"shown, the first in row {result[0] + 1:,}"
        )
        raise InputError(
            f"{option} {source}: {told}; prompts must be public: take others, or declare with "
            f"{DECLARE} that these were before any user saw them"
        )
    if result is None and (run / "private").is_dir() and not (run / "result.json").exists():
        raise InputError(
            f"{model}: the run in {run} has not ended; continue it with: murmuration run --resume "
            f"--out {run}"
        )
    return result is not None
