"""Generated pages of the kinds that a crawl meets, each with its main text, in several languages.

The markup follows the habits of common site software; all words are made up from small vocabularies. The main text is
known because it was put there, so an extractor can be scored without anybody's judgement.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

VOCABULARIES = {
    "en": (
        "the harbour master wrote that every boat should be ready before noon and children "
        "counted nets twice while rain came over hills where nobody had seen so many birds at "
        "once in spring or autumn"
    ),
    "de": (
        "der Hafenmeister schrieb dass jedes Boot vor Mittag bereit sein sollte und die Kinder "
        "zählten Netze während Regen über Hügel kam wo niemand so viele Vögel gesehen hatte im "
        "Frühling oder Herbst für größere Gäste"
    ),
    "ru": (
        "начальник порта написал что каждая лодка должна быть готова до полудня и дети считали "
        "сети дважды пока дождь шёл над холмами где никто не видел столько птиц сразу весной или "
        "осенью"
    ),
    "ar": (
        "كتب مدير الميناء أن كل قارب يجب أن يكون جاهزا قبل الظهر وعد الأطفال الشباك مرتين بينما "
        "جاء المطر فوق التلال حيث لم ير أحد هذا العدد من الطيور في الربيع أو الخريف"
    ),
    "hi": (
        "बंदरगाह के प्रमुख ने लिखा कि हर नाव दोपहर से पहले तैयार होनी चाहिए और बच्चों ने जाल दो बार गिने जब पहाड़ियों पर बारिश आई"
    ),
    "zh": (
        "港 务 长 写 道 每 条 船 都 应 该 在 中 午 前 准 备 好 孩 子 们 数 了 两 遍 渔 网 雨 从 "
        "山 上 来 没 有 人 见 过 这 么 多 鸟"
    ),
    "ja": (
        "港 の 長 は す べ て 船 が 正 午 前 に 用 意 で き る よ う 書 い た 子 供 た ち は 網 "
        "を 二 度 数 え 雨 が 丘 を 越 え て 来"
    ),
    "th": (
        "นายท่า เขียน ว่า เรือ ทุก ลำ ควร พร้อม ก่อน เที่ยง และ เด็กๆ นับ แห สอง ครั้ง ขณะที่ ฝน "
        "มา เหนือ เนินเขา ไม่มี ใคร เคย เห็น นก มากมาย"
    ),
}
UNSPACED = frozenset({"zh", "ja", "th"})
STOPS = {"zh": "。", "ja": "。", "hi": "।", "th": " "}


@dataclass
class GeneratedPage:
    """A page under construction: its markup, and what of it is main text."""

    language: str
    seed: str
    main: list[str] = field(default_factory=list)
    html: str = ""

    def __post_init__(self) -> None:
        self._random = random.Random(f"{self.seed} {self.language}")
        self._words = VOCABULARIES[self.language].split()

    def sentence(self, words: int = 14) -> str:
        """A sentence that is not main text."""
        if self.language in UNSPACED:
            return "".join(self._random.choices(self._words, k=words)) + STOPS[self.language]
        return " ".join(self._random.choices(self._words, k=words)).capitalize() + STOPS.get(self.language, ".")

    def prose(self, sentences: int = 4) -> str:
        """Sentences that are not main text."""
        joint = "" if self.language in UNSPACED else " "
        return joint.join(self.sentence() for _ in range(sentences))

    def keep(self, text: str) -> str:
        """Note a text as main."""
        self.main.append(text)
        return text

    def paragraph(self, sentences: int = 4) -> str:
        """A paragraph of main text."""
        return f"<p>{self.keep(self.prose(sentences))}</p>\n"

    def menu(self, items: int = 8) -> str:
        """Links that are not main text."""
        return "<ul>" + "".join(f'<li><a href="/{n}">{self.sentence(2)}</a></li>' for n in range(items)) + "</ul>"

    def cards(self, count: int = 4) -> str:
        """Teasers of other pages, in links."""
        return "".join(
            f'<div class="card"><a href="/s{n}"><h3>{self.sentence(6)}</h3><span>{self.sentence(9)}</span></a></div>'
            for n in range(count)
        )

    def wrap(self, body: str, *, head: str = "") -> GeneratedPage:
        """Set the page's markup around its body."""
        self.html = (
            f"<!DOCTYPE html><html><head><meta charset=utf-8><title>{self.sentence(4)}</title>"
            f"<style>p{{margin:0}}</style><script>var a='<p>no text</p>';</script>{head}</head><body>\n"
            f'<header class="site-header"><a href="/">{self.sentence(2)}</a>'
            f'<nav class="navbar">{self.menu()}</nav></header>\n'
            f'<div class="cookie-consent"><p>{self.prose(2)}</p><button>OK</button></div>\n{body}\n'
            f'<footer id="footer">{self.menu(5)}<p>© 2026 {self.prose(2)}</p></footer></body></html>'
        )
        return self


def article(page: GeneratedPage) -> GeneratedPage:
    """A news article with related stories, a sidebar, sharing buttons and comments."""
    story = "".join(page.paragraph() for _ in range(8))
    comments = "".join(f'<li class="comment"><p>{page.prose(2)}</p></li>' for _ in range(5))
    return page.wrap(
        f'<div class="layout"><main><article><div class="share-buttons">{page.menu(4)}</div>{story}'
        f'<div class="related-stories"><p>{page.prose(2)}</p>{page.cards()}</div></article>'
        f'<section id="comments"><h2>5</h2><ol>{comments}</ol></section></main>'
        f'<aside class="sidebar"><p>{page.prose(3)}</p>{page.menu()}</aside></div>'
    )


def bare_article(page: GeneratedPage) -> GeneratedPage:
    """An old page without names: a table for its layout, and paragraphs broken by ``<br>``."""
    story = "<br><br>\n".join(page.keep(page.prose(5)) for _ in range(6))
    return page.wrap(
        f'<table width="100%"><tr><td width="150">{page.menu()}</td><td><font size="2">{story}</font></td></tr></table>'
    )


def forum(page: GeneratedPage) -> GeneratedPage:
    """A thread: posts by several writers, each beside a profile."""
    posts = "".join(
        f'<div class="post"><div class="postprofile"><a href="/u{n}">{page.sentence(1)}</a>'
        f"<dl><dd>{n * 17}</dd></dl></div>"
        f'<div class="postbody"><div class="content">{page.keep(page.prose(1 + n % 4))}</div></div>'
        f'<ul class="post-buttons"><li><a href="/posting?mode=quote&amp;p={n}">{page.sentence(1)}</a></li></ul></div>'
        for n in range(9)
    )
    return page.wrap(f'<div id="page-body"><h2><a href="/t">{page.sentence(5)}</a></h2>{posts}</div>')


def discussion(page: GeneratedPage) -> GeneratedPage:
    """A page that is its comments: a link was posted, and readers reply, nested."""
    replies = "".join(
        f'<div class="comment depth-{n % 3}"><div class="byline"><a href="/u{n}">{page.sentence(1)}</a></div>'
        f'<div class="comment-body"><p>{page.keep(page.prose(2 + n % 3))}</p></div></div>'
        for n in range(8)
    )
    return page.wrap(f'<div class="thread"><h1><a href="http://x/">{page.sentence(5)}</a></h1>{replies}</div>')


def documentation(page: GeneratedPage) -> GeneratedPage:
    """A reference page: headings, code, definitions, a table and a list, beside a tree of links."""
    code = page.keep("def weigh(load, net):\n    if load > net:\n        return net\n    return load")
    rows = "".join(
        f"<tr><td><a href='/o{n}'>{page.keep(page.sentence(2))}</a></td><td>{page.keep(page.sentence(9))}</td></tr>"
        for n in range(6)
    )
    terms = "".join(
        f"<dt id='t{n}'>{page.keep(page.sentence(2))}</dt><dd><p>{page.keep(page.sentence(12))}</p></dd>"
        for n in range(5)
    )
    items = "".join(f"<li>{page.keep(page.sentence(7))}</li>" for _ in range(5))
    return page.wrap(
        f'<div class="sphinxsidebar"><h3>{page.sentence(2)}</h3>{page.menu(20)}</div>'
        f'<div class="document"><div class="body">'
        f'<h1>{page.keep(page.sentence(3))}<a class="headerlink" href="#x">¶</a></h1>{page.paragraph(3)}'
        f'<div class="highlight"><pre>{code}</pre></div><h2>{page.keep(page.sentence(3))}</h2>{page.paragraph(2)}'
        f"<table><tbody>{rows}</tbody></table><h2>{page.keep(page.sentence(3))}</h2><dl>{terms}</dl>{page.paragraph(2)}"
        f"<ul>{items}</ul></div></div>"
    )


def shop(page: GeneratedPage) -> GeneratedPage:
    """A product: description, properties, what buyers wrote, and other products."""
    facts = "".join(
        f"<tr><th>{page.keep(page.sentence(2))}</th><td>{page.keep(page.sentence(4))}</td></tr>" for _ in range(6)
    )
    reviews = "".join(f'<div class="review"><p>{page.keep(page.prose(2))}</p></div>' for _ in range(4))
    return page.wrap(
        f'<div class="breadcrumbs">{page.menu(4)}</div><div class="product"><div class="price">19,90</div>'
        f'<div class="product-description">{page.paragraph(3)}{page.paragraph(3)}</div>'
        f'<table class="properties">{facts}</table><div class="reviews">{reviews}</div></div>'
        f'<div class="related-products">{page.cards(6)}</div>'
    )


def front_page(page: GeneratedPage) -> GeneratedPage:
    """A list of stories, each a linked headline with a teaser; the teasers are the text that there is."""
    stories = "".join(
        f'<div class="story"><h2><a href="/s{n}">{page.sentence(5)}</a></h2><p>{page.keep(page.prose(2))}</p></div>'
        for n in range(10)
    )
    return page.wrap(f'<div id="content">{stories}</div><div id="sidebar">{page.menu(12)}</div>')


def builder_page(page: GeneratedPage) -> GeneratedPage:
    """A page of a page builder, which calls every paragraph a widget, and its frame one with a sidebar."""
    parts = "".join(
        f'<div class="elementor-element widget-wrap widget"><div class="widget-container">'
        f"{page.paragraph()}</div></div>"
        for _ in range(6)
    )
    return page.wrap(f'<div class="content-sidebar-wrap has-comments"><div class="elementor-inner">{parts}</div></div>')


def terse(page: GeneratedPage) -> GeneratedPage:
    """A page of short lines only, none of them long enough for a paragraph."""
    lines = "".join(f"<div>{page.keep(page.sentence(4))}</div>" for _ in range(12))
    return page.wrap(f'<div class="list">{lines}</div>')


KINDS: dict[str, Callable[[GeneratedPage], GeneratedPage]] = {
    make.__name__: make
    for make in (
        article,
        bare_article,
        forum,
        discussion,
        documentation,
        shop,
        front_page,
        builder_page,
        terse,
    )
}


def make_page(kind: str, language: str, seed: str = "") -> GeneratedPage:
    """A page of a kind in a language, the same for the same seed."""
    return KINDS[kind](GeneratedPage(language, seed))


def score(text: str, truth: str, language: str) -> tuple[float, float]:
    """Precision and recall of a text: 4-grams of words, or of letters where words are not spaced, as multisets."""

    def grams(of: str) -> Counter[tuple[str, ...]]:
        units = re.findall(r"\w" if language in UNSPACED else r"\w+", of.lower())
        return Counter(tuple(units[at : at + 4]) for at in range(max(1, len(units) - 3)))

    got, wanted = grams(text), grams(truth)
    hits = sum((got & wanted).values())
    return hits / max(1, sum(got.values())), hits / max(1, sum(wanted.values()))
