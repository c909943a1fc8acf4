"""Scores of items on a public list: a linear head over one feature an item, learnt from votes."""

from murmuration.preference.data.judgements import LeftOut
from murmuration.preference.data.loading import Data
from murmuration.preference.kinds.linear import LinearModel
from murmuration.ranking.items import ItemFeatures
from murmuration.ranking.votes import ItemVotes, item_votes


class ItemsModel(LinearModel):
    """A score of each item, on each board; see `preference.kinds.model.Model`."""

    features: ItemFeatures

    def examples(self, data: Data, left_out: LeftOut | None = None) -> ItemVotes:  # type: ignore[override]
        """The judgements as votes on items."""
        judgements = data.as_judgements("a board is made of votes, not of users' texts")
        return item_votes(judgements, self.features, left_out)
