"""The ClientApp: what runs beside the users' data, or, with an agent, only beside its socket.

What it answers is in ``client.answers``. A deployed node runs whatever ClientApp the server ships,
so nothing in here can bind that server. Where the owner's promises must hold, the node-config names
no data but the socket of an agent (``agent="/path"``), which was installed by the owner: this app
then only forwards, and so would any other that wants an answer.

Flower starts a process for every message to a deployed node, so whatever an agent makes superfluous
is not imported: that would take longer than the answer.
"""

from collections.abc import Callable

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from murmuration.client.agent.unix_socket import ask_agent

app = ClientApp()

#: The requests other than work: the keys ``query.NAME`` of ``client.answers.ANSWERS``.
QUERIES = (
    *("registry", "plan", "items", "labels"),
    *("secure_keys", "secure_shares", "secure_unmask"),
)


def _answering(kind: str) -> Callable[[Message, Context], Message]:
    def reply(message: Message, context: Context) -> Message:
        return Message(_answer(kind, message.content, context), reply_to=message)

    return reply


for query in QUERIES:
    app.query(query)(_answering(f"query.{query}"))
app.train()(_answering("train"))
app.evaluate()(_answering("evaluate"))


def _answer(kind: str, content: RecordDict, context: Context) -> RecordDict:
    if "agent" in context.node_config:
        return ask_agent(str(context.node_config["agent"]), kind, content)
    from murmuration.client.answers import ANSWERS
    from murmuration.client.hosting import client_config, host_for

    with client_config(context):
        return ANSWERS[kind](content, host_for(context))
