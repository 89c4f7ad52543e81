"""Links of Markdown pages: found, and made to lead where pages of the site are."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping

#: A block of code.
_BLOCK = re.compile(r"^(`{3,})[^`\n]*\n.*?^\1$\n?", re.DOTALL | re.MULTILINE)
#: A link or a picture (label, target), whose label may hold code; or a span of code.
_TOKEN = re.compile(r"(!?\[[^\]]*\])\(([^)\s]+)\)|(?<!`)`[^`\n]+`(?!`)")
#: Folders that paths in spans of code begin at, beside that of the page.
_BASES = ("", "tutorials", "python/warploom_bench", "python/warploom_bench/results")


def is_local(target: str) -> bool:
    """Whether the target of a link is a file, or a place on the same page."""
    return not re.match(r"[a-z][a-z0-9+.-]*:", target)


def links(text: str) -> Iterator[str]:
    """Targets of the links and pictures of a page, outside of code."""
    for match in _TOKEN.finditer(_BLOCK.sub("", text)):
        if match[2]:
            yield match[2]


def anchors(text: str) -> set[str]:
    """The anchors of a page: those of its headings, as GitHub and MyST name them, and others."""
    prose = _BLOCK.sub("", text)
    found = set(re.findall(r"^\(([\w-]+)\)=$", prose, re.MULTILINE))
    for title in re.findall(r"^#{1,6} +(.+?)\s*#*$", prose, re.MULTILINE):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        plain = re.sub(r"[^\w\- ]", "", title.replace("`", "").lower())
        found.add(plain.strip().replace(" ", "-"))
    return found


def in_prose(text: str, change: Callable[[str], str]) -> str:
    """The text, changed outside of its blocks of code."""
    made, end = [], 0
    for match in _BLOCK.finditer(text):
        made += [change(text[end : match.start()]), match[0]]
        end = match.end()
    return "".join([*made, change(text[end:])])


def relinked(text: str, source: str, page: str, pages: Mapping[str, str]) -> str:
    """A page of the repository as a page of the site: its links lead to pages of the site.

    A span of code that is the path of a file with a page becomes a link to it. A link to a file
    that has no page becomes its label. The target of a link may be a pattern such as
    ``../*_stream_k.py``.

    Parameters
    ----------
    text : str
    source : str
        Path of the file in the repository.
    page : str
        File of the site that the text is for.
    pages : mapping of str to str
        Path of a file in the repository -> the file of the site that shows it.
    """
    bases = (posixpath.dirname(source), *_BASES)

    def target_of(path: str) -> str | None:
        for base in bases:
            whole = posixpath.normpath(posixpath.join(base, path))
            known = pages.get(whole)
            if known is None and "*" in whole:  # numbers of tutorials may change
                known = next((pages[one] for one in sorted(fnmatch.filter(pages, whole))), None)
            if known is not None:
                return posixpath.relpath(known, posixpath.dirname(page) or ".")
        return None

    def link(label: str, target: str) -> str:
        path, mark, anchor = target.partition("#")
        if not is_local(target) or not path:
            return f"{label}({target})"
        found = target_of(path)
        return f"{label}({found}{mark}{anchor})" if found else label.lstrip("!").strip("[]")

    def span(code: str) -> str:
        path = code.strip("`")
        found = target_of(path) if re.fullmatch(r"[\w./-]+\.(md|py)", path) else None
        return code if found in (None, posixpath.basename(page)) else f"[{code}]({found})"

    def token(match: re.Match[str]) -> str:
        return link(match[1], match[2]) if match[2] else span(match[0])

    return in_prose(text, lambda prose: _TOKEN.sub(token, prose))
