"""A page of HTML, read by its elements."""

from html.parser import HTMLParser


class Parsed(HTMLParser):
    """The elements of a page, each of which must end, with their attributes, and its texts."""

    VOID = frozenset({"meta", "br", "img", "source"})

    def __init__(self, html):
        super().__init__()
        self.found, self.texts, self.open = [], [], []
        self.feed(html)
        self.close()

    @property
    def tags(self):
        return [tag for tag, _ in self.found]

    @property
    def attributes(self):
        return [pair for _, attributes in self.found for pair in attributes.items()]

    @property
    def links(self):
        return [value for name, value in self.attributes if name in ("src", "srcset", "href")]

    @property
    def text(self):
        return "".join(self.texts)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.texts.append(data)
