"""The operator's registration of nodes, as a file says it.

    [alice]
    key = "../clients/alice/node.pub"      # from the file's own folder
    users = 1                              # the most whom this key may host; 1 if left out
    [bob]
    key = "../clients/bob/node.pub"
    user-ids = ["bob", "bob's brother"]    # these, and nobody else; nobody else may claim them

A key that is not listed hosts nobody. Without a file each node of a deployment hosts one user.
"""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.serverapp import Grid

from murmuration.preference.data.errors import BadRow, InputError
from murmuration.preference.data.user_ids import user_cell
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.regular_files import read_regular
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol.flower_internals import is_over_network
from murmuration.strategies.protocol.registration import Hosted, Registration
from murmuration.strategies.settings.toml_text import parse_toml

_FIELDS = {"key", "users", "user-ids"}


def registration_for(config: RunConfig, grid: Grid | None = None) -> Registration | None:
    """The registration that nodes are held to: None in a simulation, where they are ours.

    Whether this is one is not for nodes to say: over a network it never is.

    Raises:
        InputError: the file cannot be used, or says numbers where only ids can keep the promise.
    """
    if config.registration:
        result = read_registration(Path(config.registration))
    elif is_over_network(grid):
        result = Registration()
    else:
        return None
    if Adjacency(config.adjacency) is Adjacency.ADD_REMOVE and not result.by_ids:
        raise InputError(
            "--adjacency add-remove: which users of a node count that hosts more than it is "
            "registered for would depend on who else is there: use zero-out, at the same epsilon, "
            "or give every node its user-ids in the registration"
        )
    return result


def read_registration(path: Path) -> Registration:
    """The registration in a file; InputError, naming file and node, for anything else."""
    try:
        tables = parse_toml(read_regular(path).decode())
    except (OSError, ValueError) as error:
        raise InputError(f"the registration {path} cannot be read: {error}") from None
    nodes: dict[bytes, Hosted] = {}
    for name, table in tables.items():
        where = f"{path}: [{name}]"
        if not isinstance(table, dict) or "key" not in table or not _FIELDS.issuperset(table):
            raise InputError(f"{where} must have key = FILE and may have users and user-ids")
        key = _key(path.parent / str(table["key"]), where)
        if key in nodes:
            raise InputError(f"{where} has the key of another node")
        nodes[key] = _hosted(table, where)
    try:
        return Registration(nodes, Hosted(0))
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None


def _key(path: Path, where: str) -> bytes:
    """A public key in Flower's form."""
    try:
        key = load_ssh_public_key(read_regular(path))
    except (OSError, ValueError) as error:
        raise InputError(f"{where}: the key {path} cannot be read: {error}") from None
    if not isinstance(key, EllipticCurvePublicKey):
        raise InputError(f"{where}: the key {path} is not an elliptic-curve key")
    from murmuration.strategies.protocol.flower_internals import public_key_to_bytes

    return public_key_to_bytes(key)


def _hosted(table: dict[str, object], where: str) -> Hosted:
    ids, users = table.get("user-ids"), table.get("users")
    if ids is not None:
        if not isinstance(ids, list) or not ids:
            raise InputError(f"{where}: user-ids must be a list of ids")
        try:
            ids = frozenset(user_cell(one, "user-ids") for one in ids)
        except BadRow as error:
            raise InputError(f"{where}: {error}") from None
    if users is None:
        users = len(ids) if ids else 1
    if type(users) is not int or users < 0:
        raise InputError(f"{where}: users must be a whole number, 0 or more; got {users!r}")
    return Hosted(users, ids)
