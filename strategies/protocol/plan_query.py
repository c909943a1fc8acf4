"""Ask, before the first round, whether the nodes' owners would allow a run's requests.

Once a run's plan is made, every registered node is shown what a request to work will say: strategy,
bounds, features, and the stated plan (``strategies.protocol.stated_plan``). It answers with the
name of the rule of its owner's policy that would refuse it, or with none. Nothing is charged for
asking, here or there. If too few would answer, the run ends (``strategies.protocol.availability``)
before anything is drawn.

What it reveals: a rule's name, one of ``RULES``. Which node named which rule goes to the private
log. A server learns no more from it than from a real request, where a refusal names the rule and
the bound; and an owner's agent looks at few different plans in an hour (``client.agent.agent``).

What is trusted: nothing. A node that says yes can refuse later; one that says no is asked all the
same, if the run goes on, since neither sampling nor a denominator may depend on it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp import Grid

from murmuration.privacy.secure_aggregation import party
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.availability import Reason, RunAborted, needed
from murmuration.strategies.protocol.exchange import exchange, message_ttl
from murmuration.strategies.protocol.records import config_of
from murmuration.strategies.protocol.users import Registry

#: The message type of the query.
QUERY = "query.plan"
#: What a node says that is to add noise, and has not the library that draws it.
OPENDP = "opendp"
#: Names of an owner's rules, and that. Nothing else of a node's is repeated.
RULES = (*messages.OWNER_RULES, OPENDP)
_PARAMETERS, _PARTIES, _ANSWER = "parameters", "parties", "answer"


def request(parameters: Mapping[str, messages.Scalar], parties: int) -> RecordDict:
    """Ask a node whether requests with these parameters would be answered.

    ``round`` among them is the first that would be requested; ``parties`` is the number of nodes
    for sums under masks, 0 without masks.
    """
    how = ConfigRecord({_PARTIES: parties})
    return RecordDict({_PARAMETERS: ConfigRecord(dict(parameters)), _PARTIES: how})


def read_request(content: RecordDict) -> tuple[messages.TrainRequest, int]:
    """The parameters of the future request, without users, and the number of parties; see
    ``request``.

    Raises ValueError where that is no number.
    """
    parameters = dict(config_of(content, _PARAMETERS))
    parties = config_of(content, _PARTIES)[_PARTIES]
    if type(parties) is not int or parties < 0:
        raise ValueError(f"no number of parties: {parties!r}")
    return messages.TrainRequest({}, parameters, messages.NOBODY), parties  # type: ignore[arg-type]


def reply(rule: str) -> RecordDict:
    """A node's answer: the rule that would refuse, or an empty text."""
    return RecordDict({_ANSWER: ConfigRecord({"refuses": rule})})


def read_reply(content: RecordDict) -> str:
    """The rule that would refuse, or an empty text; MalformedReply for anything else."""
    with messages.reading("the plan"):
        rule = config_of(content, _ANSWER)["refuses"]
        if rule not in ("", *RULES):
            raise ValueError("a rule that no policy has")
        return str(rule)


@dataclass
class Answers:
    """Nodes' answers about a plan: ``refusing`` the rule by node, ``silent`` the reason for no
    answer.

    A node that did not answer may still answer real requests.
    """

    refusing: dict[int, str] = field(default_factory=dict)
    silent: dict[int, str] = field(default_factory=dict)

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules that would refuse, each once."""
        return tuple(rule for rule in RULES if rule in self.refusing.values())

    def check(self, registry: Registry, min_nodes: float, *, masked: bool) -> None:
        """Check that enough nodes would answer, and those for at least half of the users.

        With fewer users than that the run would end after three rounds, each of them charged.

        Raises:
            RunAborted: they would not.
        """
        nodes = len(registry.nodes)
        willing = nodes - len(self.refusing)
        least = max(needed(min_nodes, nodes), 1)
        if masked:
            least = max(least, party.LEAST_PARTIES, party.threshold(nodes))
        users = {
            node: int(registry.start[place + 1] - registry.start[place])
            for place, node in enumerate(registry.nodes)
        }
        lost = sum(users[node] for node in self.refusing)
        if self.refusing and (willing < least or 2 * lost > sum(users.values())):
            private = {
                "nodes": nodes,
                "nodes that would refuse": len(self.refusing),
                "users": sum(users.values()),
                "users on nodes that would refuse": lost,
            }
            raise RunAborted(Reason.REFUSED, private=private, rules=self.rules)


def ask(
    grid: Grid,
    nodes: Collection[int],
    parameters: Mapping[str, messages.Scalar],
    *,
    parties: int,
    timeout: float,
    slow: Collection[int] = (),
) -> Answers:
    """Send every one of ``nodes`` the parameters of the future requests; their answers within
    ``timeout`` seconds.
    """
    content, result = request(parameters, parties), Answers()
    outgoing = [messages.outgoing(content, QUERY, node, 0, message_ttl(timeout)) for node in nodes]
    waiting = set(nodes)
    for answer in exchange(grid, outgoing, timeout, slow):
        node = answer.metadata.src_node_id
        if node not in waiting:
            continue
        waiting.discard(node)
        try:
            if answer.has_error():
                raise messages.MalformedReply(str(answer.error.reason))
            if rule := read_reply(answer.content):
                result.refusing[node] = rule
        except messages.MalformedReply as error:
            result.silent[node] = str(error)
    result.silent |= dict.fromkeys(waiting, "no reply in time")
    return result
