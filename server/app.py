"""The ServerApp: reads the run config, trains over whatever grid it is given."""

from datetime import datetime
from logging import INFO
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.logger import log

from murmuration.server.config import RunConfig
from murmuration.server.replies import decode_each_by_itself
from murmuration.server.training import train

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """One run; its folder holds the result."""
    settings = dict(context.run_config)
    if not settings.get("out"):
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        settings["out"] = str(Path.home() / "murmuration-runs" / stamp)
    decode_each_by_itself()
    result = train(RunConfig.from_run_config(settings), grid)
    log(INFO, "model, ledger and report: %s", result["out"])
