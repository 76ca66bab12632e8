"""The login page: a form that needs no script."""

from __future__ import annotations

from html import escape
from typing import Final, NamedTuple
from urllib.parse import urlencode

from starlette.responses import Response

from ...model.printable import escape_unseen
from ..broker_switch import base_of

POLICY: Final = (
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HOME: Final = "/"
# not "no-referrer": with it Chromium (156) sends "Origin: null" with a form, as if another site's page had sent it
_HEADERS: Final = {"content-security-policy": POLICY, "cache-control": "no-store", "referrer-policy": "same-origin"}
_CONTINUATION: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Logged in · Lading</title>
<meta http-equiv="refresh" content="0;url={goal}">
<meta name="color-scheme" content="light dark">
</head>
<body><p>You are logged in. <a href="{goal}">Go on</a></p></body>
</html>
"""
_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Log in · Lading</title>
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="/static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/console.css">
</head>
<body>
<header class="top"><a class="brand" href="{base}/"><img src="/static/icon.svg" alt="" width="22" height="22">Lading</a>
<span class="source">{source}</span></header>
<main id="main" class="login">
<div class="bar"><h1>Log in</h1></div>
{problem}{provider}{form}{others}</main>
</body>
</html>
"""
_FORM: Final = """<form method="post" action="{base}/login" class="login">
<input type="hidden" name="next" value="{next}">
<label>User <input name="user" value="{user}" autocomplete="username" autocapitalize="none" spellcheck="false" maxlength="255" required{focus_user}></label>
<label>Password <input name="password" type="password" autocomplete="current-password" maxlength="4096" required{focus_password}></label>
<button class="primary" type="submit">Log in</button>
</form>
"""  # noqa: E501 - lines of HTML


class LoginWays(NamedTuple):
    """The kinds of login that a page offers: the name of the identity provider, if there is one, and passwords."""

    source: str
    provider: str | None = None
    has_passwords: bool = True
    broker: str | None = None
    """The name of the source in a file of brokers."""
    others: tuple[str, ...] = ()
    """The names of the other brokers of that file."""

    @property
    def base(self) -> str:
        """The start of the addresses of the pages of the source."""
        return base_of(self.broker)


def render_login(
    ways: LoginWays, *, goal: str = HOME, user: str = "", problem: str = "", status: int = 200
) -> Response:
    """Return the page. ``goal`` is the path to show after the login, ``problem`` why the last one failed."""
    shown = f'<div class="error" role="alert"><p>{escape(escape_unseen(problem))}</p></div>\n' if problem else ""
    provider = form = ""
    if ways.provider is not None:
        link = f"{ways.base}/login/oidc?{urlencode({'next': goal})}"
        label = escape(escape_unseen(ways.provider))
        provider = f'<p><a class="button primary" href="{escape(link)}">Log in with {label}</a></p>\n'
    if ways.has_passwords:
        form = _FORM.format(
            next=escape(goal), user=escape(user), focus_user="" if user else " autofocus",
            focus_password=" autofocus" if user else "", base=escape(ways.base),
        )  # fmt: skip
    name = ways.source if ways.broker is None else f"{ways.broker}: {ways.source}"
    links = " · ".join(f'<a href="{escape(base_of(one))}/">{escape(one)}</a>' for one in ways.others)
    text = _PAGE.format(
        source=escape(escape_unseen(name)), problem=shown, provider=provider, form=form, base=escape(ways.base),
        others=f"<p>Each broker has a login of its own. The others here: {links}</p>\n" if links else "",
    )  # fmt: skip
    return Response(text, status, _HEADERS, "text/html; charset=utf-8")


def render_continuation(goal: str) -> Response:
    """Return a page that opens ``goal`` without a click.

    After a redirect browsers still report another site as the sender, and do not send cookies of ``SameSite=Strict``.
    """
    text = _CONTINUATION.format(goal=escape(goal))
    return Response(text, 200, _HEADERS, "text/html; charset=utf-8")


def find_goal(text: str) -> str:
    """Return a path of this console to show after a login; for anything else, such as another site, the first page."""
    is_path = text.startswith("/") and not text.startswith(("//", "/\\", "/login")) and text.isprintable()
    return text if is_path and "\\" not in text and text.isascii() and len(text) <= 8_192 else HOME
