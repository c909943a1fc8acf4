"""A finite class of policies that are there already: which they are, and the file that names them.

A policy is a causal language model, saved by a run with `--task policy` or `sft`, or from
elsewhere. What judgements lose under each is for `class_examples`.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.sources import first_line

KIND, FORMAT = "policy-class", "murmuration-policy-class-1"
#: Between the name of a class's file and its digest, where both are said.
_AT = "#"


@dataclass(frozen=True)
class Policy:
    """A policy of a class.

    Attributes:
        name: its name in the class.
        path: its folder, or a hub name.
        digest: SHA-256 of everything that decides its output (`checkpoint.digest_of`).
        lineage: heads of the ledgers of the runs that it came from, as its folder has them.
        public: whether it was declared to have no privacy cost.
    """

    name: str
    path: str
    digest: str
    lineage: tuple[str, ...] = ()
    public: bool = False


def class_digest(policies: Sequence[Policy]) -> str:
    """SHA-256 in hex of all that is said of policies but where they lie."""
    about = [[p.name, p.digest, [*p.lineage], p.public] for p in policies]
    return hashlib.sha256(json.dumps(about, separators=(",", ":")).encode()).hexdigest()


def check_class(policies: Sequence[Policy]) -> None:
    """InputError for a class of nothing, or with one policy twice (names both)."""
    if not policies:
        raise InputError("a class of policies holds at least one")
    names: set[str] = set()
    by_digest: dict[str, str] = {}
    for policy in policies:
        if policy.name in names:
            raise InputError(f"two policies of the class are called {policy.name!r}")
        if (other := by_digest.setdefault(policy.digest, policy.name)) != policy.name:
            raise InputError(f"the policies {other!r} and {policy.name!r} are the same model")
        names.add(policy.name)


def write_class(file: Path, policies: Sequence[Policy]) -> str:
    """Write a class's file; its digest.

    Raises:
        InputError: as `check_class`, or the file is there already: what was committed stays.
    """
    check_class(policies)
    digest = class_digest(policies)
    about = {"format": FORMAT, "digest": digest, "policies": [asdict(p) for p in policies]}
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(json.dumps(about, indent=2) + "\n")
    except FileExistsError:
        raise InputError(f"{file} is there already: a class that was committed stays") from None
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}") from None
    return digest


def read_class(named: str) -> tuple[Policy, ...]:
    """The policies of a class's file, in their order; ``named`` may say the class's digest, too.

    Raises:
        InputError: it cannot be read, is no class, was edited, or is not the class that was named.
    """
    file, _, stated = named.partition(_AT)
    try:
        about = json.loads(Path(file).expanduser().read_text(encoding="utf-8"))
        if about["format"] != FORMAT:
            raise ValueError(f"not a class of policies of format {FORMAT}")
        policies = tuple(policy_of(entry) for entry in about["policies"])
        digest = str(about["digest"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"--policies {file}: cannot be used: {first_line(error)}") from None
    check_class(policies)
    if class_digest(policies) != digest:
        raise InputError(f"--policies {file}: was edited since it was committed")
    if stated and digest != stated:
        raise InputError(
            f"--policies {file}: another class than the one that was named: {digest[:16]}…, "
            f"not {stated[:16]}…"
        )
    return policies


def policy_of(entry: Mapping[str, Any]) -> Policy:
    """A policy from JSON.

    Raises:
        ValueError, KeyError, TypeError: anything else.
    """
    kinds = {"name": str, "path": str, "digest": str, "lineage": list, "public": bool}
    if any(type(entry[name]) is not kind for name, kind in kinds.items()):
        raise ValueError("a policy that is none")
    return Policy(**{**entry, "lineage": tuple(map(str, entry["lineage"]))})


def with_digest(file: str) -> str:
    """A class's file with the digest of what it is now; InputError as `read_class`."""
    policies = read_class(file)
    path = Path(file.partition(_AT)[0]).expanduser().absolute()
    return f"{path}{_AT}{class_digest(policies)}"
