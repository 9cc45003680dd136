"""Whatever a peer sent, a real Markdown reader and a real HTML reader show it as text, and as the same text."""

import html as stdlib_html
import unicodedata
from html.parser import HTMLParser

from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from netlab.report import html, markdown
from netlab.report.document import Document, Section, Table, Text
from netlab.text import plain

READER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
# Everything that Markdown, HTML and terminals know, more often than chance would bring it.
PIECES = st.sampled_from(
    [
        "\\",
        "`",
        "```",
        "*",
        "**",
        "_",
        "__",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "](",
        "#",
        "##",
        "+",
        "-",
        "---",
        "===",
        "!",
        "![",
        "|",
        "~",
        "~~",
        "<",
        ">",
        "&",
        "&lt;",
        "&#60;",
        "$",
        "$$",
        "@",
        ":",
        "://",
        "http://a.b",
        "www.a.b",
        "<script>",
        "</script>",
        "<!--",
        "-->",
        "<b",
        "onload=x>",
        "1.",
        "1)",
        "10.",
        "-",
        "*",
        "+",
        ">",
        "\\|",
        "a",
        "b",
        "0",
        "é",
        "中",
        "\x1b[31m",
        "\x00",
        "\x7f",
        "\x9b",
        "\u202e",
        "\u2066",
        "\u200b",
        "\ufeff",
    ]
)
HOSTILE = st.lists(PIECES | st.sampled_from([" ", "\n", "\r", "\t", "    "]) | st.text(max_size=3), max_size=14).map(
    "".join
)


class Reader(HTMLParser):
    """Collects tags and texts."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.words.append(data)

    def handle_comment(self, data):
        self.tags.append("comment")


def said(text: str) -> str:
    """What a reader must see: Markdown and HTML both join white space."""
    return " ".join(plain(text).split())


def seen(page: str) -> str:
    return " ".join("".join(Reader(page).words).split())


@given(HOSTILE)
@example("1. one")
@example("    code")
@example("- - -")
@example("a | b \\| c \\")
@example("`a` ``b")
@example("_a_ a_b_ __c__")
def test_a_paragraph_an_item_and_a_cell_show_the_text_itself(text: str):
    escaped = markdown.escape(text)
    assert "\n" not in escaped
    for page, tags in (
        (f"before\n\n{escaped}\n", {"p"}),
        (f"- {escaped}\n", {"ul", "li", "p"}),
        (f"# {escaped}\n", {"h1"}),
        (f"x **{escaped}** x\n", {"p", "strong"}),
        (f"| a | b |\n| --- | --- |\n| {escaped} | z |\n", {"table", "thead", "tbody", "tr", "th", "td"}),
    ):
        read = READER.render(page)
        assert set(Reader(read).tags) <= tags, (page, read)
        if tags != {"p", "strong"}:  # emphasis needs a word inside, so its marks may stay
            assert said(text) in seen(read), (page, read)
    cells = Reader(READER.render(f"| a | b |\n| --- | --- |\n| {escaped} | z |\n")).tags
    assert cells.count("td") == 2


@given(HOSTILE.filter(lambda text: text.strip()))
@example("`")
@example("``` a")
def test_a_code_span_holds_the_text_and_ends_where_it_should(text: str):
    tags = Reader(READER.render(f"Query: {markdown.code(text)} end\n"))
    assert tags.tags == ["p", "code"]
    assert " ".join("".join(tags.words).split()) == f"Query: {said(text)} end"


@given(HOSTILE)
def test_html_shows_the_text_itself(text: str):
    page = html.render(
        Document(
            title=text,
            blocks=(
                Text(text=text, code=text),
                Section(title=text, sentences=(text,), remedies=((text, text),)),
                Table(title=text, columns=(text,), rows=((text,),), notes=(text,)),
            ),
        )
    )
    assert not set(Reader(page).tags) - set(
        "html head meta title style body h1 h2 p code section ul li span div table thead tbody tr th td".split()  # noqa: SIM905
    )
    assert page.count(stdlib_html.escape(plain(text), quote=True)) >= (11 if text else 0)


@given(st.text())
@example("\x1b]0;title\x07\x9b31m\u202e\u2028\ud800")
def test_plain_text_moves_no_cursor_and_reorders_no_line(text: str):
    shown = plain(text)
    assert {unicodedata.category(c) for c in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"} == set()
    assert "\n" not in shown
    shown.encode()
    if len(text) < 2_000 and text.isprintable():
        assert shown == text


def test_plain_text_is_cut_and_says_so():
    assert plain("x" * 5_000, longest=10) == "xxxxxxxxx…"
    assert plain("x" * 10, longest=10) == "x" * 10
    assert plain("a\nb\tc\r") == "a b c "
    assert plain("\x1b[0m\u202e\U000e0001") == "\\x1b[0m\\u202e\\U000e0001"


def test_what_github_turns_into_links_stays_text():
    escaped = markdown.escape("see https://a.b www.c.d @you #12 :smile: m@x.y")
    assert escaped == "see https\\://a.b www\\.c.d \\@you \\#12 \\:smile: m\\@x.y"
    assert markdown.escape("clickhouse:26.7 idle_window_restart (a-b) 1.5") == (
        "clickhouse:26.7 idle_window_restart (a-b) 1.5"
    )
