"""Which trackers there are: light to import, for whoever only offers them."""

#: Where metrics are sent (``reporting.live.tracking``).
NONE = "none"
CHOICES = (NONE, "tensorboard", "wandb")
