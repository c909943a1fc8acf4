"""Nodes that fail, or are late, when told to; all that was said between them and a server; rounds
that another process goes on with."""

from flwr.app import Error, Message

from murmuration.privacy.accounting.ledger import Ledger
from murmuration.strategies.protocol import messages


class Prepared:
    """A grid whose nodes give prepared answers: a text is an error, None no answer."""

    def __init__(self, answers):
        self.answers, self.sent = answers, []

    def get_node_ids(self):
        return list(self.answers)

    def push_messages(self, outgoing):
        self.sent = list(outgoing)
        for number, message in enumerate(self.sent):
            message.metadata.__dict__["_message_id"] = str(number)
        return [str(number) for number in range(len(self.sent))]

    def pull_messages(self, message_ids):
        for message in self.sent:
            answer = self.answers.get(message.metadata.dst_node_id)
            if answer is not None and message.metadata.message_id in message_ids:
                if isinstance(answer, messages.RegistryEntry):
                    answer = messages.registry_reply(answer)
                elif isinstance(answer, str):
                    answer = Error(2, answer)
                yield Message(answer, reply_to=message)


class Watched:
    """Passes messages on, and keeps them; ``fails`` says which nodes fail at which kind."""

    def __init__(self, grid_, fails=()):
        self.grid, self.fails, self.sent, self.replies = grid_, dict(fails), [], []

    def __getattr__(self, name):
        return getattr(self.grid, name)

    def push_messages(self, outgoing):
        outgoing = list(outgoing)
        ids = self.grid.push_messages(outgoing)
        self.sent += outgoing
        return ids

    def pull_messages(self, message_ids):
        for reply in self.grid.pull_messages(message_ids):
            self.replies.append(reply)
            kind, node = reply.metadata.message_type, reply.metadata.src_node_id
            if node not in self.fails.get(kind, ()):
                yield reply
            elif node % 2:  # half of them fail, the others never answer
                error = Message(Error(2, "KeyError: 'alice'"), reply_to=reply)
                error.metadata.__dict__.update(reply.metadata.__dict__)
                yield error


class Late(Watched):
    """As ``Watched``, but who fails is only slow: its answer comes when something else is asked."""

    def __init__(self, grid_, fails=()):
        super().__init__(grid_, fails)
        self.waiting, self.arriving, self.came_late = [], [], []

    def push_messages(self, outgoing):
        self.arriving, self.waiting = self.waiting, []
        self.came_late += self.arriving
        return super().push_messages(outgoing)

    def pull_messages(self, message_ids):
        yield from self.arriving
        self.arriving = []
        for reply in self.grid.pull_messages(message_ids):
            self.replies.append(reply)
            kind, node = reply.metadata.message_type, reply.metadata.src_node_id
            if node in self.fails.get(kind, ()):
                self.waiting.append(reply)
            else:
                yield reply


def watched_worlds(make_world, make_examples, usual_strategy, size, **usual):
    """A function: a world of two judgements a user, on the ledger of another if one is given;
    ``usual`` are settings of its plan, and ``size`` how many users there are for one in a round."""

    def make(after=None, *, seed=None, strategy=usual_strategy, users=60, fails=(), **plan):
        settings = {"cohort": users // size, "noise_multiplier": 1.5, "rounds": 10, "nodes": 3}
        made = make_world(
            make_examples([2] * users, dimension=50),
            seed=seed,
            strategy=strategy,
            wrap=lambda grid: Watched(grid, fails),
            **{**settings, **usual, **plan},
        )
        return made if after is None else on_the_ledger_of(after, made)

    return make


def rounds_of_users(*worlds):
    """By user the rounds in which they were asked, in the order of asking."""
    result = {}
    for world in worlds:
        for message in world.grid.sent:
            if message.metadata.message_type == "train":
                for name in messages.UserSelection.of(message.content).names_S.tolist():
                    result.setdefault(name, []).append(int(message.metadata.group_id))
    return result


def on_the_ledger_of(after, made):
    """A world whose strategy goes on with the ledger of another, which is over."""
    made.ledger.close()
    after.ledger.close()
    made.ledger = made.strategy.ledger = Ledger(
        after.ledger.path, adjacency=after.ledger.adjacency, delta=1e-5, budget=None
    )
    return made


def gone_on(world, made, rounds, state, **how):
    """The next process of a run, with a state that was kept after ``rounds`` of them."""
    again = world(made, **how)
    again.strategy.participants = made.strategy.participants  # a run keeps what names are made with
    again.strategy.rounds_done = rounds
    if state is not None:
        again.strategy.restore(state)
    return again


def state_of(world):
    """As a checkpoint has it: arrays that the next round does not change."""
    return {name: array.copy() for name, array in world.strategy.state().items()}
