"""Checks a folder of HTML: `links.py FOLDER` fails where a link leads nowhere, or where a page needs another site to be shown.

A link is to a file of the folder, and its fragment to an id of that file. Links that people follow to other sites are not asked for.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser fetches by itself when it shows a page.
FETCHED = {"script", "link", "img", "source", "iframe", "embed", "object", "audio", "video", "track", "use", "image"}
STYLE = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


class Page(HTMLParser):
    """The ids of a page, and its links: (target, whether it is fetched)."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.is_style = set(), [], False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.is_style = tag == "style"
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                self.ids.add(value)
            elif name in ("href", "src", "xlink:href", "data", "poster") and value is not None:
                self.links.append((value, tag in FETCHED))
            elif name == "style":
                self.links += [(target, True) for target in styled(value or "")]

    def handle_endtag(self, tag):
        self.is_style = False

    def handle_data(self, data):
        if self.is_style:
            self.links += [(target, True) for target in styled(data)]


def styled(text):
    return [one or other for one, other in STYLE.findall(text)]


def problem(root, file, target, is_fetched, pages):
    """What is wrong with a link of a file; None if nothing is."""
    parts = urlsplit(target)
    if parts.scheme == "data":
        return None
    if parts.scheme or parts.netloc:
        return f"is fetched from another site: {target}" if is_fetched else None
    if parts.path.startswith("/"):
        return f"is a path from the root of a server: {target}"
    path = (file.parent / unquote(parts.path)).resolve() if parts.path else file
    if path.is_dir():
        path /= "index.html"
    if not path.is_relative_to(root) or not path.is_file():
        return f"there is no file for {target}"
    if parts.fragment and path in pages and unquote(parts.fragment) not in pages[path].ids:
        return f"{path.relative_to(root)} has no id for {target}"
    return None


def main():
    root = Path(sys.argv[1]).resolve()
    pages = {file: Page(file.read_text()) for file in sorted(root.rglob("*.html"))}
    links = [(file, *link) for file, page in pages.items() for link in page.links]
    for file in sorted(root.rglob("*.css")):
        links += [(file, target, True) for target in styled(file.read_text())]
    wrong = {f"{file.relative_to(root)}: {why}" for file, *link in links if (why := problem(root, file, *link, pages))}
    for line in sorted(wrong):
        print(line, file=sys.stderr)
    if wrong or not pages:
        sys.exit(f"{len(wrong)} broken links in {len(pages)} pages of {root}")
    print(f"{len(links)} links of {len(pages)} pages lead somewhere", file=sys.stderr)


main()
