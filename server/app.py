"""The ServerApp: reads the run config, trains over whatever grid it is given."""

import os
from contextlib import nullcontext
from datetime import datetime
from logging import INFO
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.logger import log

from murmuration.preference.language.base_model import without_gpu
from murmuration.server.config import RunConfig
from murmuration.server.replies import decode_each_by_itself
from murmuration.server.training import train

app = ServerApp()
#: Set in the environment where nodes on the same machine have its GPUs.
WITHOUT_GPU = "MURMURATION_SERVER_WITHOUT_GPU"


@app.main()
def main(grid: Grid, context: Context) -> None:
    """One run; its folder holds the result."""
    settings = dict(context.run_config)
    if not settings.get("out"):
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        settings["out"] = str(Path.home() / "murmuration-runs" / stamp)
    decode_each_by_itself()
    with without_gpu() if os.environ.get(WITHOUT_GPU) else nullcontext():
        result = train(RunConfig.from_run_config(settings), grid)
    log(INFO, "model, ledger and report: %s", result["out"])
