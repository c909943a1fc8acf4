"""The plug-in of surveys (``murmuration.privacy.plugins``)."""

BRINGS = {
    "murmuration.strategies": {"survey": "murmuration.surveying.strategy:SURVEY"},
    "murmuration.settings": {"survey": "murmuration.surveying.settings:SurveySettings"},
    "murmuration.plan_options": {"survey": "murmuration.surveying.settings:PLAN_OPTIONS"},
    "murmuration.models": {"survey reward": "murmuration.surveying.answers:SurveyModel"},
    "murmuration.public_lists": {"survey": "murmuration.surveying.questionnaire:Questionnaire"},
    "murmuration.pages": {"survey": "murmuration.surveying.api:write_page"},
    "murmuration.commands": {"survey": "murmuration.surveying.commands:survey"},
    "murmuration.api": {
        "Survey": "murmuration.surveying.api:Survey",
        "survey": "murmuration.surveying.api:survey",
    },
}
