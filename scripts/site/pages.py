"""Lays the documentation out as mdBook wants it: `pages.py OUT` writes OUT/SUMMARY.md and the pages and files that it names.

docs/README.md is the list of pages: a heading is a part of the book, and a link of its tables a page of it. The README of a folder below docs/
lists the pages of that folder. Paths stay those of the repository, so that relative links stay true. A page that no list has is an error.
"""

import re
import shutil
import sys
from pathlib import Path, PurePosixPath

LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])+)\]\(([^()\s]+)\)")
TARGET = re.compile(r"\]\(([^()\s]+)\)")
INDEX = "docs/README.md"
FENCE = "```"


def prose(text):
    """The lines outside of code blocks, each with whether it is one."""
    is_code = False
    for line in text.splitlines():
        is_fence = line.lstrip().startswith(FENCE)
        is_code ^= is_fence
        yield line, not (is_code or is_fence)


def resolve(page, target):
    """The path in the repository of a link's target; None for other sites and for headings of the page itself."""
    file = target.partition("#")[0]
    if "://" in target or target.startswith("mailto:") or not file:
        return None
    parts = []
    for part in (PurePosixPath(page).parent / file).parts:
        if part == "..":
            if not parts:
                sys.exit(f"{page}: {target} is outside of the repository")
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def linked(page):
    """The pages that the tables of a page link to, with the text of the first link to each."""
    found = {}
    part = None
    for line, is_prose in prose(Path(page).read_text()):
        if is_prose and line.startswith("## "):
            part = line[3:]
        if not (is_prose and line.startswith("|")):
            continue
        for text, target in LINK.findall(line):
            path = resolve(page, target)
            if path and path.endswith(".md") and path not in found:
                found[path] = (text, part)
    return found


def title(text):
    return text.strip("`").removesuffix(".md")


def summary():
    """The text of SUMMARY.md, and the pages in it."""
    lines, pages, part = ["# Summary", "", "[kubefold](README.md)", f"[Documentation]({INDEX})"], ["README.md", INDEX], None
    for path, (text, of) in linked(INDEX).items():
        if path in pages:
            continue
        if of != part:
            part = of
            lines += ["", f"# {part}", ""]
        lines.append(f"- [{title(text)}]({path})")
        pages.append(path)
        folder = PurePosixPath(path).parent
        if PurePosixPath(path).name == "README.md":
            below = [below for below in linked(path).items() if PurePosixPath(below[0]).parent == folder and below[0] not in pages]
            lines += [f"  - [{title(text)}]({below})" for below, (text, _) in below]
            pages += [below for below, _ in below]
    return "\n".join(lines) + "\n", pages


def staged(page, out):
    """Copies a page, and the files that it links to. A folder has no page of its own, so a link to one is its text."""
    lines = []
    for line, is_prose in prose(Path(page).read_text()):
        if is_prose:
            line = LINK.sub(lambda link: link[1] if Path(resolve(page, link[2]) or "/none").is_dir() else link[0], line)
            for target in TARGET.findall(line):
                path = resolve(page, target)
                if path and not path.endswith(".md") and Path(path).is_file():
                    (out / path).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, out / path)
            # mdBook gives a README the name of an index, and not the links to it.
            line = TARGET.sub(lambda link: link[0].replace("README.md", "index.md"), line)
        lines.append(line)
    (out / page).parent.mkdir(parents=True, exist_ok=True)
    (out / page).write_text("\n".join(lines) + "\n")


def main():
    out = Path(sys.argv[1])
    text, pages = summary()
    missing = sorted({path.as_posix() for path in Path("docs").rglob("*.md")} - set(pages))
    if missing:
        sys.exit(f"no list has these pages: {', '.join(missing)}; give each a line in docs/README.md, or in the README of its folder")
    out.mkdir(parents=True)
    (out / "SUMMARY.md").write_text(text)
    for page in pages:
        staged(page, out)


main()
