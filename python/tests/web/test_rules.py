"""Rules: their decisions, and the mistakes that are refused when they are made."""

from __future__ import annotations

import time

import pytest
from glasscache import BadSetting
from glasscache.web import Rules
from glasscache.web._message import NO_SETTINGS, Request, Settings
from glasscache.web.rules import Rule, When


def make_request(url: str = "/", method: str = "GET", **fields: str) -> Request:
    path, _, query = url.partition("?")
    fields_of_request = [
        (name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()
    ]
    return Request(
        method,
        "http",
        path.encode(),
        query.encode(),
        [(b"host", b"shop.example"), *fields_of_request],
    )


def decision_of(
    text: str, http_request: Request, status: int = 200, content_type: str = "text/html"
) -> Settings:
    rules = Rules.from_text(text)
    return rules.decide_response(
        rules.decide(http_request), http_request, status, [(b"content-type", content_type.encode())]
    )


def test_the_first_rule_that_has_a_setting_decides_it() -> None:
    text = """
        [[rule]]
        name = "news"
        when = { path = "/news/**" }
        then = { ttl = 10, tags = ["news"] }
        [[rule]]
        name = "all"
        then = { ttl = 60, grace = 5, tags = ["all"] }
    """
    news_settings, other_settings = (
        decision_of(text, make_request("/news/a/b")),
        decision_of(text, make_request("/x")),
    )
    assert (news_settings.ttl, news_settings.grace, news_settings.tags) == (10, 5, ("news", "all"))
    assert news_settings.deciding_rules == {"ttl": "news", "tags": "news", "grace": "all"}
    assert (other_settings.ttl, other_settings.grace, other_settings.tags) == (60, 5, ("all",))


@pytest.mark.parametrize(
    ("when", "http_request", "matches"),
    [
        ('path = "/a/*"', make_request("/a/b"), True),
        ('path = "/a/*"', make_request("/a/b/c"), False),
        ('path = "/a/**"', make_request("/a/b/c"), True),
        ('path = "/a?c"', make_request("/abc"), True),
        ('path = "/exact"', make_request("/exact"), True),
        ('path = "/exact"', make_request("/exactly"), False),
        ('path_regex = "/item/([0-9]+)"', make_request("/item/17"), True),
        ('method = ["POST", "PUT"]', make_request(method="PUT"), True),
        ('method = "POST"', make_request(), False),
        ('host = "*.example"', make_request(), True),
        ('host = "shop.test"', make_request(), False),
        ("header = { x-debug = true }", make_request(x_debug=""), True),
        ("header = { x-debug = true }", make_request(), False),
        ("header = { x-debug = false }", make_request(), True),
        ('header = { accept = "json$" }', make_request(accept="application/json"), True),
        ("cookie = { session = true }", make_request(cookie="a=1; session=x"), True),
        ("cookie = { session = true }", make_request(cookie="a=1"), False),
        ("cookie = { session = false }", make_request(), True),
    ],
)
def test_a_rule_applies_to_requests_that_meet_its_conditions(
    when: str, http_request: Request, matches: bool
) -> None:
    settings = decision_of(
        f"[[rule]]\nwhen = {{ {when} }}\nthen = {{ bypass = true }}", http_request
    )
    assert settings.bypass is matches


def test_a_rule_applies_to_responses_that_meet_its_conditions() -> None:
    text = """
        [[rule]]
        name = "errors"
        when = { status = ["4xx", 500] }
        then = { no_store = true }
        [[rule]]
        name = "pictures"
        when = { content_type = "image/*" }
        then = { ttl = 3600 }
        [[rule]]
        name = "rest"
        then = { ttl = { 200 = 60, 3xx = 5, default = 1 } }
    """
    assert decision_of(text, make_request(), 404).no_store
    assert decision_of(text, make_request(), 500).no_store
    assert not decision_of(text, make_request(), 503).no_store
    assert decision_of(text, make_request(), 200, "image/png; x=y").ttl == 3600
    assert [decision_of(text, make_request(), status).ttl for status in (200, 301, 503)] == [
        60,
        5,
        1,
    ]


def test_canonical_urls_share_a_key() -> None:
    text = """
        [[rule]]
        when = { path = "/**" }
        [rule.then.canonicalise]
        query_sort = true
        query_drop = ["utm_*", "fbclid"]
        trailing_slash = "strip"
    """
    rules = Rules.from_text(text)

    def key(url: str) -> bytes:
        http_request = make_request(url)
        return http_request.digest(b"", rules.decide(http_request))

    assert key("/a/?b=2&a=1&utm_source=x") == key("/a?a=1&b=2") == key("/a/?fbclid=9&b=2&a=1")
    assert key("/a?a=1") != key("/a?a=2") != key("/a")
    assert key("/a?x=1&x=2") != key("/a?x=2&x=1")


def test_keys_vary_on_the_header_that_a_rule_names() -> None:
    text = '[[rule]]\nthen = { vary_on = ["cookie:lang", "device", "language", "header:x-plan"] }'
    rules = Rules.from_text(text)

    def key(**fields: str) -> bytes:
        http_request = make_request(**fields)
        return http_request.digest(b"", rules.decide(http_request))

    assert key(cookie="lang=de; s=1") == key(cookie="s=2; lang=de") != key(cookie="lang=en")
    assert key(user_agent="Mozilla (iPhone; Mobile)") == key(user_agent="Android Mobile") != key()
    assert (
        key(accept_language="de-AT, en;q=0.5")
        == key(accept_language="de")
        != key(accept_language="fr")
    )
    assert key(x_plan="a") != key(x_plan="b")


def test_a_tag_contains_groups_of_the_path() -> None:
    text = '[[rule]]\nwhen = { path_regex = "/item/([0-9]+)/.*" }\nthen = { tags = ["item-{1}"] }'
    assert decision_of(text, make_request("/item/17/x")).tags == ("item-17",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rule = 3", "tables"),
        ("[[rule]]\nthen = {}", "nothing under then"),
        ("x = 1", "unknown 'x'"),
        (
            "\n[[rule]]\nwhen = 'x'\nthen = { ttl = 1 }",
            r"rule '1' \(line 2\): when = 'x' is not a table",
        ),
        ("[[rule]]\nname = 'a'\nwhen = ['x']\nthen = { ttl = 1 }", r"rule 'a' \(line 1\): when"),
        ("[[rule]]\nwhen = []\nthen = { ttl = 1 }", r"when = \[\] is not a table"),
        ("[[rule]]\nwhen = false\nthen = { ttl = 1 }", "when = False is not a table"),
        ("[[rule]]\nwhen = { header = 'x' }\nthen = { ttl = 1 }", "header is a table of names"),
        ("[[rule]]\nwhen = { cookie = ['x'] }\nthen = { ttl = 1 }", "cookie is a table of names"),
        ("[[rule]]\nthen = 'x'", r"rule '1' \(line 1\): nothing under then"),
        ("[[rule]]\nthen = ['x']", r"rule '1' \(line 1\): nothing under then"),
        ("[[rule]]\nthen = { canonicalise = 'x' }", "wrong type"),
        (
            "[[rule]]\nwhen = { pth = '/' }\nthen = { ttl = 1 }",
            r"line 1\): unknown condition 'pth'",
        ),
        ("\n\n[[rule]]\nthen = { tll = 1 }", r"line 3\): unknown setting 'tll'"),
        ("[[rule]]\nthen = { ttl = -1 }", "write 0 or more"),
        ("[[rule]]\nthen = { ttl = 'long' }", "wrong type"),
        ("[[rule]]\nthen = { ttl = true }", "wrong type"),
        ("[[rule]]\nthen = { bypass = true, ttl = 5 }", "contradict"),
        ("[[rule]]\nthen = { no_store = true, tags = ['a'] }", "contradict"),
        ("[[rule]]\nwhen = { path = 'a' }\nthen = { ttl = 5 }", "cannot match"),
        (
            "[[rule]]\nwhen = { path = '/a', path_regex = '/a' }\nthen = { ttl = 5 }",
            "two conditions",
        ),
        ("[[rule]]\nwhen = { path_regex = '(' }\nthen = { ttl = 5 }", "path"),
        ("[[rule]]\nwhen = { status = 700 }\nthen = { ttl = 5 }", "cannot match"),
        ("[[rule]]\nwhen = { method = 'get' }\nthen = { ttl = 5 }", "upper case"),
        ("[[rule]]\nwhen = { method = 'POST' }\nthen = { ttl = 5 }", "no effect"),
        ("[[rule]]\nwhen = { status = 404 }\nthen = { bypass = true }", "before the response"),
        ("[[rule]]\nthen = { vary_on = ['color'] }", "vary_on"),
        ("[[rule]]\nthen = { vary_on = [3] }", "member of the wrong type"),
        ("[[rule]]\nthen = { ttl = { 200 = 'long' } }", "member of the wrong type"),
        ("[[rule]]\nthen = { ttl = { 200 = -1 } }", "write 0 or more"),
        ("[[rule]]\nthen = { ttl = nan }", "write 0 or more"),
        ("[[rule]]\nthen = { grace = inf }", "write 0 or more"),
        ("[[rule]]\nthen = { ttl = { 2xy = 5 } }", "ttl of '2xy' cannot match"),
        (
            "[[rule]]\nwhen = { status = 404 }\nthen = { ttl = { 200 = 5 } }",
            "ttl of '200' cannot match: the rule is for 404",
        ),
        ("[[rule]]\nwhen = { path = '/caf\u00e9' }\nthen = { ttl = 5 }", "percent-encoded"),
        ("[[rule]]\nwhen = { path = '/a#b' }\nthen = { ttl = 5 }", "percent-encoded"),
        ("[[rule]]\nwhen = { path_regex = 'a/.*' }\nthen = { ttl = 5 }", 'paths begin with "/"'),
        ("[[rule]]\nwhen = { host = 'http://a' }\nthen = { ttl = 5 }", "write the name alone"),
        ("[[rule]]\nwhen = { header = { 'x y' = true } }\nthen = { ttl = 5 }", "not a name"),
        (
            "[[rule]]\nwhen = { content_type = 'text/html; charset=utf-8' }\nthen = { ttl = 5 }",
            "leave its parameters out",
        ),
        (
            "[[rule]]\nwhen = { header = { Cookie = false }, cookie = { a = true } }\nthen = { ttl = 5 }",
            "contradict",
        ),
        (
            "[[rule]]\nthen = { canonicalise = { query_drop = 'utm_*' } }",
            r"query_drop = 'utm_\*': a list such as",
        ),
        (
            "[[rule]]\nthen = { canonicalise = { query_keep = ['a'], query_drop = ['b'] } }",
            "contradict",
        ),
        ("[[rule]]\nname='a'\nthen={ttl=1}\n[[rule]]\nname='a'\nthen={grace=1}", "same name"),
        ("[[rule]]\nthen={ttl=1}\n[[rule]]\nwhen={path='/a'}\nthen={ttl=2}", "never decides"),
        (
            "[[rule]]\nwhen={path='/a/**'}\nthen={bypass=true}\n[[rule]]\nwhen={path='/a/b'}\nthen={ttl=2}",
            r"rule '2' \(line 4\) never decides: rule '1' \(line 1\) bypasses all",
        ),
        (
            "[[rule]]\nwhen={path='/a/**'}\nthen={no_store=true}\n[[rule]]\nwhen={path='/a/b'}\nthen={ttl=2}",
            r"rule '2' \(line 4\) never decides",
        ),
    ],
)
def test_wrong_rules_are_refused_with_their_line_and_the_reason(text: str, message: str) -> None:
    with pytest.raises(BadSetting, match=message) as refusal:
        Rules.from_text(text)
    if "then = {" in text and "nothing" not in message:
        assert "(line " in str(refusal.value)


def test_a_rule_made_in_python_refuses_a_glob_together_with_a_regular_expression() -> None:
    with pytest.raises(BadSetting, match=r"rule 'a' \(line 3\): path and path_regex are two"):
        Rule("a", When(path="/a", path_regex="/b"), {"ttl": 5}, line=3)


@pytest.mark.parametrize(
    "text",
    [
        "[[rule]]\nwhen={path='/a/*'}\nthen={ttl=1}\n[[rule]]\nwhen={path='/a/**'}\nthen={ttl=2}",
        "[[rule]]\nthen={tags=['a']}\n[[rule]]\nwhen={path='/a'}\nthen={tags=['b']}",
        "[[rule]]\nthen={ttl={200=1}}\n[[rule]]\nwhen={path='/a'}\nthen={ttl=2}",
        """
        [[rule]]
        when = { path = "/a/x" }
        then = { no_store = false }
        [[rule]]
        when = { path = "/a/**" }
        then = { no_store = true }
        [[rule]]
        when = { path = "/a/**" }
        then = { ttl = 2 }
        """,
        "[[rule]]\nwhen={status='4xx'}\nthen={ttl={404=1, 4xx=2, default=3}}",
    ],
)
def test_rules_that_overlap_in_part_are_taken(text: str) -> None:
    assert Rules.from_text(text).rules


def test_a_thousand_rules_cost_a_request_little(capsys: pytest.CaptureFixture[str]) -> None:
    text = "".join(
        f'[[rule]]\nwhen = {{ path = "/shop/{number}/**" }}\nthen = {{ ttl = {number} }}\n'
        for number in range(999)
    )
    rules = Rules.from_text(text + "[[rule]]\nname = 'last'\nthen = { grace = 9 }")
    http_request = make_request("/shop/500/x/y")
    started_at = time.perf_counter()
    for _ in range(1000):
        settings = rules.decide(http_request)
    us_per_decision = (time.perf_counter() - started_at) * 1000
    assert [rule.name for rule in settings.matched_rules] == ["501", "last"]
    assert rules.decide(make_request("/x")).matched_rules[0].name == "last"
    assert Rules([]).decide(http_request) is NO_SETTINGS
    with capsys.disabled():
        print(f" [{us_per_decision:.1f} us a request of 1,000 rules]", end="")  # noqa: T201
