"""The ClientApp: what runs beside the users' data.

It answers three questions: whom it hosts, what the bounded sum of some of its users is, and how a
model does on some of its users. One user's non-finite contribution is that user's zero; nothing
leaves but what the strategy's node half returns.
"""

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from client.store import source_for, store_for
from preference.reward import accuracy_of
from strategies import messages
from strategies.catalogue import NODE_HALVES

app = ClientApp()


@app.query("registry")
def registry(message: Message, context: Context) -> Message:
    """Whom this node hosts; numbers of judgements only if the server says they are public.

    Computes features, so that what is wrong with them shows before the first round.
    """
    request = message.content.config_records["registry"]
    store = store_for(context)
    store.examples(str(request["features"]))
    entry = messages.RegistryEntry(
        place=store.place,
        keys_U=store.salted_keys(bytes(request["salt"])),  # type: ignore[arg-type]
        counts_U=store.judgements.counts_U if request["counts"] else None,
    )
    return Message(messages.registry_reply(entry), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """The bounded sums over the sampled users' contributions."""
    work, store = messages.read_work(message.content), store_for(context)
    users_S = store.check_users(work.users_S)
    node_half = NODE_HALVES[str(work.parameters["strategy"])]
    examples = store.examples(str(work.parameters["features"]))
    sums = node_half(examples, work, store.keys_U[users_S], source_for(context))
    if not all(np.isfinite(total).all() for total in sums.values()):
        raise FloatingPointError("a sum of bounded contributions is not finite")
    return Message(messages.sums_reply(sums), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """How often the model agrees with held-out users."""
    work, store = messages.read_work(message.content), store_for(context)
    users_S = store.check_users(work.users_S)
    examples = store.examples(str(work.parameters["features"]))
    found = accuracy_of(work.arrays["theta"], examples.select(users_S))
    counted = found.judgements > 0
    tally = messages.tally_reply(
        correct=found.pooled * found.judgements if counted else 0.0,
        judgements=found.judgements,
        mean_sum=found.by_user * found.users if counted else 0.0,
        users=found.users,
    )
    return Message(tally, reply_to=message)
