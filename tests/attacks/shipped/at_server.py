"""The ServerApp beside ``at_node``: asks every node, then stays, as a run of many rounds does."""

import time
from pathlib import Path

from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Ask, and wait to be told to end."""
    folder = Path(str(context.run_config["folder"]))
    while not (nodes := list(grid.get_node_ids())):
        time.sleep(0.2)
    asked = [Message(RecordDict(), message_type="query", dst_node_id=node) for node in nodes]
    grid.send_and_receive(asked, timeout=60)
    (folder / "asked").touch()
    for _ in range(600):
        if (folder / "end").exists():
            return
        time.sleep(0.1)
