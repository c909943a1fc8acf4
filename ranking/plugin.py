"""The plug-in of ranking (``murmuration.privacy.plugins``)."""

BRINGS = {
    "murmuration.strategies": {"ranking": "murmuration.ranking.strategy:RANKING"},
    "murmuration.settings": {"ranking": "murmuration.ranking.settings:RankingSettings"},
    "murmuration.plan_options": {"board": "murmuration.ranking.settings:PLAN_OPTIONS"},
    "murmuration.models": {"items reward": "murmuration.ranking.model:ItemsModel"},
    "murmuration.features": {"items": "murmuration.ranking.items:ItemFeatures"},
    "murmuration.public_lists": {"items": "murmuration.ranking.items:ItemFeatures"},
    "murmuration.pages": {"ranking": "murmuration.ranking.api:write_page"},
    "murmuration.commands": {"rank": "murmuration.ranking.commands:rank"},
    "murmuration.init": {"arena": "murmuration.ranking.commands:arena"},
    "murmuration.api": {
        "Ranking": "murmuration.ranking.api:Ranking",
        "rank": "murmuration.ranking.api:rank",
    },
}
