"""A class of policies, committed before a run chooses one of them: what it stands on.

A private choice among policies promises what it does if the class does not depend on what the run's
users judged. So a class is a file that names each policy's contents by their digest, and the runs
that it came from (``server.record.lineage``), written before the run; the run goes on with that
class and no other. A policy that these users may have been trained on is no secret to a choice only
if that was private itself: then what its runs cost is added to what the choice costs, as for a
base, since a run may depend on what earlier ones released (basic composition). Where nothing can be
added the run is refused.

No file can show whether users' data were used in other ways before committing.
"""

from collections.abc import Iterable
from pathlib import Path

from murmuration.preference.base_names import resolve_base
from murmuration.preference.data.errors import InputError
from murmuration.preference.language.adapter_config import ADAPTER
from murmuration.preference.language.checkpoint import folder_of
from murmuration.preference.language.loading import contents_of
from murmuration.privacy.accounting.chained_record import NO_LINES
from murmuration.privacy.accounting.terms import RunTerms
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.promise import Promise, ReleasedRun
from murmuration.research.strategies.choice.policy_class import Policy, write_class
from murmuration.server.record.lineage import lineage_of_model
from murmuration.strategies.settings.run import Settings

_BEGIN_AGAIN = "commit a class without it, or what was there when it was committed"
_UNKNOWN = "take the folder as its run left it, or leave the policy out"


def commit(file: Path, named: Iterable[str], public: bool = False) -> tuple[str, list[Policy]]:
    """Write the class of some models to a file; returns its digest, and the policies.

    Args:
        file: its path; must not exist.
        named: folders or hub names, or NAME=FOLDER. A folder that a run calls ``model`` goes by
            the run's name.
        public: declares that those whose folders name no run were made without users' data, or from
            public data.

    Raises:
        InputError: a model cannot be part of a class; the message has the reason.
    """
    policies = [_committed(text, public) for text in named]
    return write_class(file, policies), policies


def _committed(text: str, public: bool) -> Policy:
    name, equals, path = text.partition("=")
    if not equals:
        path, folder = text, Path(text).expanduser()
        last = folder.absolute().parent.name if folder.name == "model" else folder.name
        name = last or text
    try:
        path = resolve_base(path)
        folder = folder_of(path, local=Path(path).is_dir())
    except (InputError, OSError) as error:
        raise InputError(f"policy {name!r}: {str(error).removeprefix('--base: ')}") from None
    if not any((folder / there).exists() for there in ("config.json", ADAPTER)):
        raise InputError(
            f"policy {name!r}: {path} holds no model; of a run it is what lies in model/, which "
            "was released (checkpoint/ was not)"
        )
    lineage = lineage_of_model("policy", path, _UNKNOWN)
    heads = tuple(str(run.head) for run in lineage.runs)
    if not (heads or lineage.public or public):
        raise InputError(
            f"policy {name!r}: nothing in {path} says whose data it was made from; if it was "
            "nobody's, or what is public, declare that with --declare-public"
        )
    return Policy(name, path, contents_of(path).digest, heads, not heads or lineage.public)


def of_policies(policies: Iterable[Policy], config: Settings) -> Promise:
    """The runs that the policies of a run's class came from.

    All of them: which policy is chosen depends on the others, too.

    Raises:
        InputError: a policy does not stand on what was committed, or on runs on people who may be
            this run's, and whose cost cannot be added.
    """
    lineage = Promise(())
    for policy in policies:
        result = lineage_of_model(f"policy {policy.name!r}:", policy.path, _UNKNOWN)
        if sorted(str(run.head) for run in result.runs) != sorted(policy.lineage):
            raise InputError(
                f"policy {policy.name!r}: {policy.path} names other runs that it came from than "
                f"when it was committed; {_BEGIN_AGAIN}"
            )
        if not (result.runs or policy.public):
            raise InputError(
                f"policy {policy.name!r}: nothing says whose data it was made from; {_BEGIN_AGAIN}"
            )
        _check_added(policy.name, result, config)
        lineage |= result.declared_public() if policy.public else result
    return lineage


def _check_added(name: str, lineage: Promise, config: Settings) -> None:
    """InputError where earlier runs on people who may be this run's have no epsilon to add."""
    disjoint = {run.terms.run for run in lineage.runs} if config.disjoint else set()
    terms = RunTerms(population=config.population, disjoint_from=frozenset(disjoint - {""}))
    adjacency = Adjacency(config.adjacency)
    this = ReleasedRun(
        terms=terms, adjacency=adjacency, delta=config.delta, epsilon=config.epsilon, head=NO_LINES
    )
    for row in (lineage | Promise((this,))).composed:
        theirs = not (config.population and row.populations)
        if (theirs or config.population in row.populations) and row.runs > 1 and row.why:
            raise InputError(
                f"policy {name!r} was trained on people who may be in this run, and its cost "
                f"cannot be added to that of the choice: {row.why}. If they are other people, "
                "say so with --population and --disjoint (possible only for runs with a "
                "named population); otherwise commit a class without it"
            )
