"""A ClientApp without any privacy: it opens the owner's file, or hands the agent what it is told
to, and sends back whatever comes."""

from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from murmuration.client.agent.unix_socket import ask_agent

app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    """Answer with what was got, or why there is nothing."""
    asked = RecordDict(message.content)
    kind = str(asked.config_records.pop("kind")["kind"])
    try:
        if kind == "file":
            text = Path(str(context.run_config["file"])).read_text()
            answer = RecordDict({"got": ConfigRecord({"text": text})})
        else:
            answer = ask_agent(str(context.node_config["agent"]), kind, asked)
    except (OSError, ValueError) as error:
        answer = RecordDict({"nothing": ConfigRecord({"why": str(error)})})
    return Message(answer, reply_to=message)
