"""The ClientApp: what runs beside the users' data, or, with an agent, only beside its socket.

What it answers is in ``client.answers``. A deployed node runs whatever ClientApp the server ships,
so nothing in here can bind that server. Where the owner's promises must hold, the node-config names
no data but the socket of an agent (``agent="/path"``), which was installed by the owner: this app
then only forwards, and so would any other that wants an answer.

Flower starts a process for every message to a deployed node, so whatever an agent makes superfluous
is not imported: that would take longer than the answer.
"""

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from murmuration.client.agent.unix_socket import ask_agent

app = ClientApp()


@app.query("registry")
def registry(message: Message, context: Context) -> Message:
    """Whom this node hosts."""
    return _reply("query.registry", message, context)


@app.query("plan")
def plan(message: Message, context: Context) -> Message:
    """By which of its owner's rules it would refuse what a run is going to ask, if by any."""
    return _reply("query.plan", message, context)


@app.query("items")
def items(message: Message, context: Context) -> Message:
    """What was shown to some of its users, where that is public."""
    return _reply("query.items", message, context)


@app.query("labels")
def labels(message: Message, context: Context) -> Message:
    """What some of its users tell of their labels: randomized, once and for all."""
    return _reply("query.labels", message, context)


@app.query("secure_keys")
def secure_keys(message: Message, context: Context) -> Message:
    """Secure aggregation: fresh public keys."""
    return _reply("query.secure_keys", message, context)


@app.query("secure_shares")
def secure_shares(message: Message, context: Context) -> Message:
    """Secure aggregation: shares of its secrets, sealed for the others."""
    return _reply("query.secure_shares", message, context)


@app.query("secure_unmask")
def secure_unmask(message: Message, context: Context) -> Message:
    """Secure aggregation: shares by which the sum, and nothing else, can be unmasked."""
    return _reply("query.secure_unmask", message, context)


@app.train()
def train(message: Message, context: Context) -> Message:
    """The bounded sums over the sampled users' contributions."""
    return _reply("train", message, context)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """How often the model agrees with held-out users."""
    return _reply("evaluate", message, context)


def _reply(kind: str, message: Message, context: Context) -> Message:
    return Message(_answer(kind, message.content, context), reply_to=message)


def _answer(kind: str, content: RecordDict, context: Context) -> RecordDict:
    if "agent" in context.node_config:
        return ask_agent(str(context.node_config["agent"]), kind, content)
    from murmuration.client.answers import answer
    from murmuration.client.hosting import host_for, told_to_the_server

    with told_to_the_server(context):
        return answer(kind, content, host_for(context))
