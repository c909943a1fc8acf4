"""The page: nothing in it is fetched or run, and no text becomes markup."""

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from murmuration.server.reporting import html


class Parsed(HTMLParser):
    VOID = frozenset({"meta", "img", "source"})

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.open, self.links = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "srcset", "href")]
        self.texts += [value for name, value in attrs if name == "alt"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
def test_texts_stay_texts(text):
    parts = [
        html.title(text),
        html.heading(text),
        html.paragraph(text),
        html.bullets([text]),
        html.warning_box(text, [text]),
        html.table([(text, text, text)]),
        html.figure(b"light", b"dark", text, text),
        html.footer(text),
    ]
    found = Parsed(html.page(text, parts))
    assert found.open == []
    assert found.texts.count(text) >= 13 or text.isspace()
    assert set(found.tags) <= {
        *("html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "ul", "li"),
        *("aside", "table", "tr", "th", "td", "small", "figure", "picture", "source", "img"),
        *("figcaption", "footer"),
    }


def test_nothing_is_fetched():
    text = html.page("a", [html.figure(b"light", b"dark", "b", "c")])
    links = Parsed(text).links
    assert len(links) == 2 and all(link.startswith("data:image/png;base64,") for link in links)
    assert "http" not in text and "url(" not in text and "@import" not in text


def test_no_box_without_warnings():
    assert html.warning_box("Careful", []) == ""
