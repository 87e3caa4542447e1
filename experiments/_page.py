"""Markdown as one HTML page that needs nothing else: no scripts, no other files."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable
from typing import Any

STYLE = """
:root { color-scheme: light dark; --text: #1f2328; --ground: #ffffff; --soft: #59636e;
  --line: #d1d9e0; --band: #f6f8fa; --link: #0969da; --note: #9a6700; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --ground: #0d1117;
  --soft: #9198a1; --line: #3d444d; --band: #151b23; --link: #4493f8; --note: #d29922; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 52rem; padding: 1rem; background: var(--ground);
  color: var(--text); font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: break-word; }
h1, h2, h3, h4 { line-height: 1.25; margin: 2rem 0 0.75rem; }
h1 { margin-top: 0.5rem; }
h2 { border-bottom: 1px solid var(--line); padding-bottom: 0.3rem; }
a { color: var(--link); }
code { background: var(--band); border-radius: 4px; font-size: 0.9em; padding: 0.1em 0.3em; }
pre { background: var(--band); border-radius: 6px; overflow-x: auto; padding: 0.75rem; }
pre code { padding: 0; }
blockquote { border-left: 0.25rem solid var(--note); margin: 1rem 0; padding: 0.1rem 1rem; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border: 1px solid var(--line); padding: 0.3rem 0.6rem; }
tbody tr:nth-child(even) { background: var(--band); }
figure { margin: 1.25rem 0; }
figure img { display: block; height: auto; max-width: 100%; }
figcaption { color: var(--soft); font-size: 0.9rem; margin-top: 0.3rem; }
"""

Pictures = Callable[[str], tuple[bytes, bytes] | None]


def as_page(title: str, markdown: str, pictures: Pictures) -> str:
    """A page of HTML.

    Args:
        title: of the window.
        markdown: the text (CommonMark and tables). HTML in it is shown, not obeyed. An image
            whose address is that of a picture is put into the page.
        pictures: address → the picture in light and in dark colours, as SVG, or None.

    Returns:
        The page.

    Example:
        >>> page = as_page("Title", "| a |\\n|---|\\n| <b> |", lambda address: None)
        >>> "<td>&lt;b&gt;</td>" in page, "<script" in page
        (True, False)
    """
    from markdown_it import MarkdownIt

    # Text of corpora ends up in here: HTML in it must stay text.
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    # A wide table scrolls by itself; the page must not scroll sideways on a telephone.
    parser.add_render_rule("table_open", lambda *_: '<div class="scroll"><table>\n')
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    tokens = parser.parse(markdown)
    _lift_pictures(parser, tokens, pictures)
    parser.add_render_rule("picture", lambda _, tokens, index, *__: tokens[index].content)
    body = parser.renderer.render(tokens, parser.options, {})
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n{body}</body>\n</html>\n"
    )


def _lift_pictures(parser: Any, tokens: list[Any], pictures: Pictures) -> None:
    """Make a figure of each paragraph that is nothing but a known image."""
    from markdown_it.token import Token

    for index, token in enumerate(tokens):
        children = token.children or []
        if token.type != "inline" or len(children) != 1 or children[0].type != "image":
            continue
        picture = pictures(str(children[0].attrGet("src")))
        if picture is None:
            continue
        # A figure may not stand in a paragraph, whose two ends are hidden instead of removed.
        tokens[index - 1] = tokens[index + 1] = Token("text", "", 0)
        caption = parser.renderer.renderInlineAsText(children[0].children, parser.options, {})
        tokens[index] = Token("picture", "", 0, content=_figure(picture, caption))


def _figure(picture: tuple[bytes, bytes], caption: str) -> str:
    light, dark = (f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}" for svg in picture)
    text = html.escape(caption)
    return (
        "<figure>\n<picture>\n"
        f'<source media="(prefers-color-scheme: dark)" srcset="{dark}">\n'
        f'<img src="{light}" alt="{text}">\n</picture>\n'
        f"<figcaption>{text}</figcaption>\n</figure>\n"
    )
