"""The owner's agent: the only process that reads a user's data, and what it lets out.

A SuperNode runs whatever app the server sends, so a promise made inside the ClientApp binds nobody.
The agent is installed by the owner, runs as an operating-system user of its own where that is
possible, and owns the data, the policy, the state file of labels and the user's own ledger. The
ClientApp has nothing but the path of its socket: it forwards requests and gets answers, or the name
of the rule that refused one.

Every answer about anybody is on the user's own ledger, flushed, before it leaves (keys and shares
of masks are about nobody). Errors go to the owner, in the agent's log; the other side learns only
that there is no answer, because the reason may depend on data.

Under masks a round of a run is answered once, and never also without: of the same sum over all
parties and over all but one the difference is that one's. A round that a crash lost stays lost; the
next one is another sum, and counts against the owner's own limits.

Before a run asks for anything it learns by which rule it would be refused
(``client.agent.plan_check``).

A user who is trained on in a run is not measured on in it, and the other way round: the ledger
notes that, too, by user, so that it survives a restart.

What a hostile server still gets: bounded sums at models of its choosing, as many as ``max_rounds``
allows; the names of users under a salt it knows (it can test guesses of an id).
"""

import grp
import hashlib
import logging
import math
import os
import pwd
import socket
import stat
import time
import traceback
from pathlib import Path

import numpy as np
from flwr.app import RecordDict

from murmuration.client import secure
from murmuration.client.agent import unix_socket
from murmuration.client.agent.identity import Identity
from murmuration.client.agent.ledger import OwnLedger
from murmuration.client.agent.plan_check import (
    check_asked,
    check_cost,
    check_masks,
    check_promise,
    check_public,
    check_repeated,
    epsilon_of,
    within,
)
from murmuration.client.agent.policy import HOLD_OUT, Policy, PolicyRefusal
from murmuration.client.agent.request_bounds import check_fields, check_parts
from murmuration.client.answers import ANSWERS, Host, randomized
from murmuration.client.labels.memory import LabelState, TermsChanged
from murmuration.client.store import UserStore
from murmuration.preference.data.errors import InputError
from murmuration.privacy import extensions
from murmuration.privacy.accounting.events import BufferedGaussian
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.strategies.protocol import (
    label_queries,
    messages,
    plan_query,
    public_items,
    secure_messages,
)
from murmuration.strategies.protocol.node_texts import shortened
from murmuration.strategies.protocol.records import config_of
from murmuration.strategies.protocol.stated_plan import StatedPlan

log = logging.getLogger("murmuration.agent")

#: Distinct feature maps that are computed and kept in memory. A run on a language model asks for
#: two: the second says how much of it is computed at a time.
MOST_FEATURE_MAPS = 8
#: A plan that took so many seconds to be refused makes the next new one wait nine times as long: no
#: more than a tenth of the agent's time goes into such plans.
LONG, _PAUSES = 5.0, 9.0
#: So many different runs are looked at in an hour before they ask for anything; the name that goes
#: with a refusal, which is no rule that an owner can change.
MOST_QUESTIONS, QUESTIONS = 12, "questions"
_HOUR = 3600.0
_NO_ANSWER = "the agent could not answer; its own log says why"


class Agent:
    """Answers requests as far as a policy allows, and keeps count.

    Args:
        store: the users and their judgements.
        policy: what may leave.
        state: a folder of the agent's own: ``own-ledger.jsonl``, ``labels.state`` and
            ``identity.key``.

    Raises:
        InputError: the folder or its files cannot be used, or others can read it.
    """

    def __init__(self, store: UserStore, policy: Policy, state: Path) -> None:
        self.store, self.policy = store, policy
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        if stat.S_IMODE(state.stat().st_mode) & 0o077:
            raise InputError(f"{state} can be used by others: chmod 700 it first")
        with extensions.only(policy.extensions):
            self.ledger = OwnLedger(state / "own-ledger.jsonl")
        self._features: set[str] = set()
        self._no_plans_until = -math.inf
        self._accounted: tuple[list[StatedPlan], float] = [], 0.0
        self._questions: dict[bytes, float] = {}  # different runs that were shown, and when
        self._host = Host(
            store=lambda: store,
            labels=lambda: LabelState(state / "labels.state"),
            source=Randomness(None),
            terms=policy.terms,
            identity=Identity.at(state / "identity.key"),
            halves=lambda: policy.node_halves,
        )

    @property
    def name(self) -> str:
        """The key (hex) by which other owners' agents know this one."""
        return self._host.identity.public.hex()

    def handle(self, kind: str, content: RecordDict) -> RecordDict:
        """The answer to a request.

        Raises:
            PolicyRefusal, TermsChanged: it is not allowed; the message may be sent to the other
            side.
        """
        check_fields(content)
        with extensions.only(self.policy.extensions):
            return self._answer(kind, content)

    def _answer(self, kind: str, content: RecordDict) -> RecordDict:
        if kind == plan_query.QUERY:
            return plan_query.reply(self._would_refuse(content))
        try:
            self._admit(kind, content)
            return ANSWERS[kind](content, self._host)
        except (PolicyRefusal, TermsChanged) as refusal:
            self.ledger.refuse(kind, str(refusal))
            raise

    def _would_refuse(self, content: RecordDict) -> str:
        """The rule by which requests of a run would be refused, or none; nothing is charged.

        What exactly is refused, and why, is on the own ledger.

        Raises:
            PolicyRefusal: too many different runs were shown in an hour.
        """
        self._count_question(content)
        try:
            work, parties = plan_query.read_request(content)
            check_asked(
                self.policy,
                self.ledger,
                work,
                parties,
                self._cost,
                hosted=len(self.store.keys_U),
                randomized=randomized(self.store.judgements),
            )
        except PolicyRefusal as refusal:
            self.ledger.refuse(plan_query.QUERY, str(refusal))
            return refusal.rule
        self.ledger.answer(plan_query.QUERY, users=0)
        return ""

    def _count_question(self, content: RecordDict) -> None:
        """By many questions a server would find the owner's bounds, and nobody would notice."""
        asked = hashlib.sha256(unix_socket.encoded(content)).digest()
        now = time.monotonic()
        self._questions = {q: at for q, at in self._questions.items() if now - at < _HOUR}
        if asked not in self._questions and len(self._questions) >= MOST_QUESTIONS:
            refusal = PolicyRefusal(QUESTIONS, "many different plans were shown in an hour")
            self.ledger.refuse(plan_query.QUERY, str(refusal))
            raise refusal
        self._questions.setdefault(asked, now)

    def _admit(self, kind: str, content: RecordDict) -> None:
        """Charge what is allowed; PolicyRefusal for everything else."""
        if kind not in ANSWERS:
            raise PolicyRefusal("strategies", f"nothing is answered to {kind[:40]!r}")
        if kind == "query.registry":
            self.policy.check_registry(content)
            self._limit_features(str(config_of(content, "registry")["features"]))
            self.ledger.answer(kind, users=len(self.store.keys_U))
        elif kind == public_items.QUERY:
            check_public(self.policy)
            selection = public_items.read_request(content, self.policy.terms)
            self.ledger.answer(kind, users=len(self._users(selection)))
        elif kind == label_queries.QUERY:
            promise, selection = label_queries.read_request(content)
            check_promise(self.policy, promise, randomized(self.store.judgements))
            self.ledger.answer(kind, users=len(self._users(selection)))
        elif kind == secure_messages.SHARES:
            invitation = secure_messages.Invitation.of(content)
            try:
                secure.check_company(invitation, self.policy.terms, self._host.identity)
            except secure.Unwanted as error:
                raise PolicyRefusal(error.rule.replace("-", "_"), str(error)) from None
            self.policy.check_crowd(len(invitation.roster))
        elif kind in (secure_messages.KEYS, secure_messages.UNMASK):
            return  # keys and shares of masks: nothing about anybody
        else:
            check_masks(self.policy, secure.masked(content))
            users_S = self._users(messages.UserSelection.of(content))
            self._admit_work(kind, messages.read_work(content, users_S), _sum(kind, content))

    def _users(self, asked: messages.UserSelection) -> np.ndarray:
        """The places of those who are asked for and are here."""
        places_S = self.store.where(asked)
        return places_S[places_S >= 0]

    def _admit_work(self, kind: str, work: messages.TrainRequest, masked: str) -> None:
        """Charge work; ``masked`` names the sum that is to leave under masks, if it is."""
        policy, ledger = self.policy, self.ledger
        # A masked sum of nobody would leave the others' as it is, without noise.
        only_noise = kind == "train" and masked and messages.NOISE_PARTIES in work.parameters
        users = len(work.users_S)
        if users < max(policy.min_users, bool(masked)) and (users or not only_noise):
            raise PolicyRefusal("min_users", f"of those who are asked for {users} are here")
        keys_S = self.store.keys_U[work.users_S]
        self._limit_features(str(work.parameters.get("features", "")))
        done = ledger.answered[kind]
        if kind == "evaluate":
            if done >= policy.max_evaluations:
                raise PolicyRefusal("max_evaluations", f"{done} accuracies were told")
            plan, round_ = policy.check_evaluation(work.parameters), 0
        else:
            plan, round_ = policy.check_work(work), int(work.number("round"))
            if done >= policy.max_rounds:
                raise PolicyRefusal("max_rounds", f"{done} were answered")
        check_repeated(policy, ledger, plan, round_, bool(masked))
        self._check_once(kind, plan.run, round_, masked)
        self._check_half(kind, plan.run, keys_S)
        if kind == "train":
            self._check_turn(plan, round_, keys_S)
        self._charge(plan)
        ledger.answer_work(kind, keys_S, run=plan.run, round_=round_, masked=masked)

    def _check_once(self, kind: str, run: str, round_: int, masked: str) -> None:
        """Refuse (PolicyRefusal) a sum that was sent before, or both under masks and without."""
        before = (kind, run, round_) in self.ledger.masked
        if masked in self.ledger.sums or (before and not masked):
            raise PolicyRefusal("max_repeats", "this sum was told before, under masks")
        if masked and not before and self.ledger.told(kind, run, round_):
            raise PolicyRefusal("max_repeats", "this sum was told before, without masks")

    def _check_half(self, kind: str, run: str, keys_S: np.ndarray) -> None:
        """PolicyRefusal for a user who was asked for the other half of a run: nobody is in both."""
        other = "evaluate" if kind == "train" else "train"
        if not self.ledger.asked(other, run).isdisjoint(keys_S.tolist()):
            done = "trained" if other == "train" else "measured"
            raise PolicyRefusal(HOLD_OUT, f"a user was {done} on in this run before")

    def _check_turn(self, plan: StatedPlan, round_: int, keys_S: np.ndarray) -> None:
        """PolicyRefusal for a user who is asked out of turn, where the plan costs what it says for
        users who are in every so many rounds alone."""
        first = self.ledger.first_rounds("train", plan.run)
        for event, _ in plan.charges:
            if not isinstance(event, BufferedGaussian):
                continue
            apart = (round_ - first.get(key, round_) for key in keys_S.tolist())
            if not 1 <= round_ <= event.rounds or any(n % event.separation for n in apart):
                raise PolicyRefusal(
                    "max_repeats",
                    f"the stated noise is for {event.rounds} rounds and users who are in one of "
                    f"{event.separation} of them, and round {round_} is not of these",
                )

    def _charge(self, plan: StatedPlan) -> None:
        """Charge a run that is new; PolicyRefusal if the owner's budget does not cover it."""
        epsilon = check_cost(self.ledger, plan, self._cost)
        if epsilon is not None:
            self.ledger.open_run(plan, epsilon)

    def _cost(self, plans: list[StatedPlan]) -> float:
        """ε of all plans; PolicyRefusal if that is too much, or cannot be known.

        Where the owner counts on so many honest nodes, it is what the server itself sees.
        """
        if honest := self.policy.honest_parties:
            plans = [plan.against_server(honest) for plan in plans]
        if plans == self._accounted[0]:  # as when a run was shown before it asks
            return within(self.policy, self._accounted[1])
        started = time.monotonic()
        if started < self._no_plans_until:
            raise PolicyRefusal(
                "max_epsilon",
                "it took long to refuse the last new plan; state one again in "
                f"{math.ceil(self._no_plans_until - started)} seconds",
            )
        try:
            epsilon = epsilon_of(plans, self.policy.delta)
            self._accounted = plans, epsilon
            return within(self.policy, epsilon)
        except PolicyRefusal:
            ended = time.monotonic()
            if ended - started > LONG:
                self._no_plans_until = ended + _PAUSES * (ended - started)
            raise

    def _limit_features(self, config: str) -> None:
        if config not in self._features and len(self._features) >= MOST_FEATURE_MAPS:
            raise PolicyRefusal("features", "too many different feature maps were asked for")
        self.policy.check_features(config)
        self._features.add(config)


def _sum(kind: str, content: RecordDict) -> str:
    """The name of the sum that is asked for under masks; none for one without."""
    return secure_messages.about(kind, content).hex() if secure.masked(content) else ""


def serve(agent: Agent, path: Path, *, group: str | None = None, user: str | None = None) -> None:
    """Answer at a Unix socket until the process is stopped.

    The socket is for its owner alone (mode 0600); with ``group`` for a group too (0660), with
    ``user`` for that user instead (needs root).

    Raises:
        InputError: the socket cannot be made, or another agent answers there.
    """
    with listening(path, group, user) as listener:
        log.info("answering at %s for %d users", path, len(agent.store.keys_U))
        log.info("its key, which others may list among their parties: %s", agent.name)
        try:
            while True:
                connection, _ = listener.accept()
                with connection:
                    _serve_one(agent, connection)
        finally:
            path.unlink(missing_ok=True)


def listening(path: Path, group: str | None = None, user: str | None = None) -> socket.socket:
    """A listening socket at ``path``; see ``serve``."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket():
            if unix_socket.answers(path):
                raise InputError(f"another agent answers at {path}; end it first")
            path.unlink()
        umask = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(umask)
        if group is not None:
            os.chown(path, -1, grp.getgrnam(group).gr_gid)
            path.chmod(0o660)
        if user is not None:
            os.chown(path, pwd.getpwnam(user).pw_uid, -1)
        listener.listen(8)
    except (OSError, KeyError) as error:
        listener.close()
        raise InputError(f"the agent's socket {path} cannot be made: {error}") from None
    return listener


def _serve_one(agent: Agent, connection: socket.socket) -> None:
    """One request, one answer; whatever goes wrong is this connection's alone."""
    kind = "?"
    try:
        kind, data = unix_socket.read_request(connection)
        connection.settimeout(unix_socket.REQUEST_SECONDS)  # for taking the answer, too
        try:
            check_parts(data)
            result = agent.handle(kind, unix_socket.decoded(data))
        except (PolicyRefusal, TermsChanged) as refusal:
            log.warning("%s", refusal)
            unix_socket.send_refusal(connection, str(refusal))
        except InputError as error:
            log.error("no answer to %r: %s", kind, shortened(str(error)))
            unix_socket.send_refusal(connection, _NO_ANSWER)
        except Exception as error:
            # Its message may quote a user's text: what it is and where is enough.
            where = "".join(traceback.format_tb(error.__traceback__))
            log.error("no answer to %r: %s at\n%s", kind, type(error).__name__, where)
            unix_socket.send_refusal(connection, _NO_ANSWER)
        else:
            unix_socket.send_answer(connection, result)
            log.info("answered %s", kind)
    except Exception as error:  # nothing that one connection sends may end the agent
        log.warning("a connection that came to nothing (%r): %s", kind, shortened(str(error)))
