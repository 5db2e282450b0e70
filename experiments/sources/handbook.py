"""The text of The Debian Administrator's Handbook (R. Hertzog, R. Mas; GPL-2+ or CC BY-SA 3.0), which is split by chapter."""

import re
from html.parser import HTMLParser
from pathlib import Path

from sources import debian

PACKAGE, FOLDER = "debian-handbook", "usr/share/doc/debian-handbook/html/en-US"
# SHA-256 of the pages in the order of the book, in the package of Debian 12.
DIGEST = "96a2295a52ab1dc6f06191989ab555cf6b0d5ca2f872a5db749c1cf49413f18c"
# The chapters that are held out. They are a seventh of the text, one on services and one on packages.
HELD_OUT = ("network-services", "debian-packaging")

BLOCKS = ("div", "p", "li", "dt", "dd", "h1", "h2", "h3", "h4", "h5", "h6", "tr", "pre", "ul", "ol", "dl", "table")


class _Text(HTMLParser):
    """Takes the text of a page between the lines of navigation above and below it."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self._hidden: list[str] = []  # the open elements in one that is not read
        self._in_pre = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        kind = dict(attrs).get("class") or ""
        is_hidden = tag in ("head", "script", "style") or dict(attrs).get("id") in ("banner", "title")
        if self._hidden or is_hidden or "docnav" in kind or kind == "toc":
            if tag not in ("img", "br", "hr", "link", "meta", "input", "col"):
                self._hidden.append(tag)
            return
        self._in_pre += tag == "pre"
        if tag in BLOCKS:
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if self._hidden:
            if tag in self._hidden:
                while self._hidden.pop() != tag:
                    pass
            return
        self._in_pre -= tag == "pre"
        if tag in BLOCKS:
            self.pieces.append("\n")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "br" and not self._hidden:
            self.pieces.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.pieces.append(data if self._in_pre else re.sub(r"\s+", " ", data))


def text_of(page: str) -> str:
    """The text of a page of the book: a paragraph on each line, and listings as they are."""
    parser = _Text()
    parser.feed(page)
    lines = (line.strip(" \t") if not line.startswith("  ") else line.rstrip() for line in "".join(parser.pieces).split("\n"))
    return "\n".join(line for line in lines if line.strip()) + "\n"


def chapters_of(index: str) -> dict[str, list[str]]:
    """The pages of each chapter, by the name of its first one, in the order of the table of contents."""
    found: dict[str, list[str]] = {}
    seen: set[str] = set()
    for part in re.split(r'<span class="(?:chapter|preface|appendix)">', index)[1:]:
        pages = list(dict.fromkeys(re.findall(r'href="([^"#:]+\.html)"', part)))
        found[pages[0].removesuffix(".html")] = [page for page in pages if page not in seen]
        seen.update(pages)
    return found


def is_complete(folder: Path) -> bool:
    """Whether the folder has both parts, and was made of the pages with the digest."""
    note = folder / "source.txt"
    parts = all((folder / f"{part}.txt").is_file() for part in ("training", "validation"))
    return parts and note.is_file() and DIGEST in note.read_text("utf-8")


def write(folder: Path, scratch: Path) -> None:
    """Writes training.txt and validation.txt. Raises SourceError."""
    source = debian.folder_of(PACKAGE, FOLDER, scratch)
    chapters = chapters_of((source / "index.html").read_text("utf-8"))
    if missing := [name for name in HELD_OUT if name not in chapters]:
        raise debian.SourceError(f"{source}/index.html: no chapter {' and no chapter '.join(missing)}")
    pages = [source / page for of_chapter in chapters.values() for page in of_chapter]
    found = debian.digest(pages)
    if found != DIGEST:
        raise debian.SourceError(f"{source}: the SHA-256 digest of its pages is {found}, expected {DIGEST}, as in Debian 12")
    for part in ("training", "validation"):
        with (folder / f"{part}.txt").open("w", encoding="utf-8") as file:
            for name, of_chapter in chapters.items():
                if (name in HELD_OUT) == (part == "validation"):
                    file.writelines(text_of((source / page).read_text("utf-8")) for page in of_chapter)
    (folder / "source.txt").write_text(
        f"The package {PACKAGE}; pages with the SHA-256 digest {DIGEST}; held out: {', '.join(HELD_OUT)}\n", "utf-8"
    )
