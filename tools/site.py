"""Builds the documents as a site with MkDocs, and writes the pages that the program and the results say.

Usage: python tools/site.py [--out FOLDER] [--program FILE]

Gives MkDocs the pages of the project, with the pictures and the files that they link to, the reference, which
`attnbench` prints, and the gallery of the figures in results/. A link that leads nowhere, also to a heading, is an error,
and so is a page that the navigation lacks and a page that loads something from another host.
"""

import argparse
import html
import json
import logging
import os
import re
import subprocess
import sys
import tomllib
import urllib.parse
from pathlib import Path

# Material for MkDocs says at its import what it thinks of MkDocs 2.
os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")

from bs4 import BeautifulSoup
from mkdocs.commands import build as mkdocs
from mkdocs.config import load_config
from mkdocs.exceptions import Abort, BuildError
from mkdocs.plugins import BasePlugin, event_priority
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "docs" / "site"
# A link or a picture in Markdown: what is shown, and where it leads to.
LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s]+)\)")
# Files that are shown as text, in their folder, with this ending added.
SHOWN_AS_TEXT = ".txt"
GALLERY = "docs/gallery.md"
HOME = Path("README.md")
# A figure is shown as wide as a page of a paper is, in pixels of CSS.
FIGURE_WIDTH = 648
# Longer tables of records are not shown.
MAX_RECORDS = 40
# The elements for which a browser loads what they name.
LOADING = "script[src], img[src], iframe[src], source[src], object[data], link[rel~=stylesheet], link[rel~=icon], link[rel~=preload]"


class SiteError(Exception):
    """Something that a maintainer of the pages has to mend. The message names the page."""


def tracked(*patterns):
    """The files of the project that fit one of the patterns, as git knows them."""
    found = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, check=True, capture_output=True, text=True)
    return [Path(line) for line in found.stdout.splitlines()]


def cell(value):
    """Text as the cell of a table in Markdown."""
    text = html.escape(str(value), quote=False).replace("|", "\\|").replace("\n", " ")
    return re.sub(r"([*_`\[\]])", r"\\\1", text)


def code(text):
    """Text as code in the cell of a table, which may break after an underscore; a dash for no text."""
    return f"<code>{html.escape(text).replace('|', '&#124;').replace('_', '_<wbr>')}</code>" if text else "–"


def table(headers, rows):
    """The lines of a table in Markdown, whose cells are Markdown."""
    lines = ["| " + " | ".join(headers) + " |", "|" + " --- |" * len(headers)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


class Source(BasePlugin):
    """Gives MkDocs the files of the site, and looks at the pages that it makes of them."""

    def __init__(self, program, pages=None):
        super().__init__()
        self.program = Path(program).resolve()
        # By the name of a page, the file that it is read from.
        self.pages = pages or {page: ROOT / page for page in tracked("*.md") if "tests" not in page.parts}
        # By its name in the site: the text of a file, or its path.
        self.files = {}

    @event_priority(100)  # so that other plugins see these files
    def on_files(self, files, *, config):
        for page, file in self.pages.items():
            self.add_page(page, file)
        self.files |= self.reference() | {GALLERY: self.gallery()}
        for name, content in self.files.items():
            given = {"content": content} if isinstance(content, str) else {"abs_src_path": str(content)}
            files.append(File.generated(config, str(name), **given))

    def on_post_page(self, output, *, page, config):  # noqa: ARG002
        for element in BeautifulSoup(output, "html.parser").select(LOADING):
            address = next(element[name] for name in ("src", "href", "data") if element.get(name))
            if urllib.parse.urlsplit(address).netloc:
                logging.getLogger("mkdocs").warning(f"{page.file.dest_uri} loads {address} from elsewhere")

    def copy(self, file, target):
        self.files[target] = ROOT / file

    def add_page(self, page, file):
        """Adds a page and the files that it links to."""
        text = file.read_text("utf-8")
        if page == HOME:
            text = f"---\nhide: [navigation]\n---\n{text}"
        self.files[page] = LINK.sub(lambda found: f"{found[1]}({self.target_of(page, found[2])})", text)

    def target_of(self, page, link):
        """Where a link of a page leads to in the site. Links out of the project stay as they are, and so do those that
        lead nowhere, which MkDocs finds."""
        path, hash_sign, anchor = link.partition("#")
        target = (ROOT / page.parent / path).resolve()
        if not path or "://" in path or path.startswith("mailto:") or not target.exists():
            return link
        inside = target.relative_to(ROOT)
        if inside.suffix == ".md":
            return link
        if target.is_dir():
            is_result = inside.parts[0] == "results"
            place = f"{GALLERY}#{inside.parts[1]}" if is_result else str(self.add_listing(inside))
            return os.path.relpath(place, page.parent)
        if inside.suffix in (".png", ".svg", ".pdf"):
            self.copy(inside, inside)
            return path
        shown = inside.with_name(inside.name + SHOWN_AS_TEXT)
        self.copy(inside, shown)
        return os.path.relpath(shown, page.parent) + hash_sign + anchor

    def add_listing(self, folder):
        """A page that lists the files of a folder, which are shown as text."""
        page = folder / "README.md"
        if (ROOT / page).exists():
            return page
        lines = [f"# {folder}", "", f"The files of the folder `{folder}`.", ""]
        for file in tracked(f"{folder}/*"):
            shown = file.with_name(file.name + SHOWN_AS_TEXT)
            self.copy(file, shown)
            lines.append(f"- [{file.relative_to(folder)}]({os.path.relpath(shown, folder)})")
        self.files[page] = "\n".join(lines) + "\n"
        return page

    # ------------------------------------------------------------ what the program says

    def ask(self, *words):
        done = subprocess.run([self.program, *words], cwd=ROOT, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise SiteError(f"attnbench {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def ask_json(self, *words):
        return json.loads(self.ask(*words, "--format", "json"))

    def reference(self):
        """The pages of the reference, by their paths."""
        return {
            "docs/reference/commands.md": self.commands(),
            "docs/reference/methods.md": methods(self.ask_json("list", "methods")),
            "docs/reference/columns.md": columns(self.ask_json("list", "columns")),
            "docs/reference/sweep-keys.md": sweep_keys(self.ask_json("list", "keys")),
        }

    def commands(self):
        said = self.ask("--help")
        names = re.findall(r"^  ([a-z]+) {2,}\S", said.partition("Commands:")[2].partition("\nOptions:")[0], re.MULTILINE)
        lines = ["---", "hide: [toc]", "---", "# Commands", "", "What `attnbench --help` and the `--help` of each command print.", ""]
        lines += ["[attnbench](#attnbench)", *(f"· [{name}](#attnbench-{name})" for name in names), ""]
        for words in ([], *([name] for name in names)):
            text = said if not words else self.ask(*words, "--help")
            lines += [f"## {' '.join(['attnbench', *words])}", "", "```text", text.rstrip(), "```", ""]
        return "\n".join(lines)

    # ------------------------------------------------------------ results

    def gallery(self):
        """The page of the results that the project ships."""
        about = tomllib.loads((SITE / "gallery.toml").read_text("utf-8"))
        names = {path.parts[1] for path in tracked("results/*") if len(path.parts) > 2}
        if missing := names ^ about.keys():
            raise SiteError(f"docs/site/gallery.toml and results/ differ in {', '.join(sorted(missing))}")
        parts = tomllib.loads((ROOT / "experiments/parts.toml").read_text("utf-8"))
        commands = {}
        for part in [*parts["sweeps"], *parts["trainings"]]:
            commands.setdefault(part["name"], []).append(f"build/attnbench {part['command']}")
        lines = ["# Gallery", "", "The results that the project ships: what they show, which machine and revision they come from, and"]
        lines += ["the command that measures them again. `{machine}` stands for the name of your machine's folder.", ""]
        for name, entry in about.items():
            again = [f"build/attnbench {entry['command']}"] if "command" in entry else commands[name]
            lines += [f"## {entry['title']} {{ #{name} }}", "", f"{entry['shows']} [More]({entry['page']})", ""]
            for machine in sorted({path.parts[2] for path in tracked(f"results/{name}/*")}):
                lines += self.result(Path("results") / name / machine)
            lines += ["Measured again by:", "", "```text", *again, "```", ""]
        return "\n".join(lines)

    def result(self, folder):
        """The lines of the gallery about what one machine has measured."""
        figures = tracked(f"{folder}/*.png")
        shown = [line for figure in figures[:1] for line in self.figure(figure)]
        if figures[1:]:
            shown += [f'??? note "{len(figures) - 1} more"', ""]
            shown += ["    " + line if line else "" for figure in figures[1:] for line in self.figure(figure)]
        if not figures and (ROOT / folder / "records.jsonl").exists():
            said = self.ask("table", str(folder), "--format", "markdown").splitlines()
            if len(said) <= MAX_RECORDS:
                shown += ['??? note "The records"', "", *("    " + line for line in said if line.startswith("|")), ""]
        return [*shown, provenance(folder), ""]

    def figure(self, picture):
        """A picture, as a link to itself in a form that stays sharp."""
        self.copy(picture, picture)
        sharp = picture.with_suffix(".svg")
        self.copy(sharp, sharp)
        here, there = (os.path.relpath(path, "docs") for path in (picture, sharp))
        attributes = f'{{ width="{FIGURE_WIDTH}" loading="lazy" }}'
        return [f"[![{picture.stem.replace('-', ' ')}]({here}){attributes}]({there})", ""]


def provenance(folder):
    """Which machine and build measured a folder of results, as a line."""
    for path in sorted((ROOT / folder).glob("**/*.json")):
        build = json.loads(path.read_text("utf-8")).get("environment")
        if build and build.get("revision"):
            return f"*{cell(build['cpu_model'])}, {build['processors']} processors, revision {build['revision']}.*"
    raise SiteError(f"{folder} does not say which machine and revision it comes from")


def methods(listed):
    """The page of the methods."""
    lines = ["# Methods", "", "What `attnbench list methods` says. [Using attnbench](../using.md#methods) groups them by what they compute.", ""]
    yes = {True: "yes", False: "no"}
    rows = [
        (f"[`{one['name']}`](#{one['name']})", one["time_order"], one["memory_order"], yes[one["capabilities"]["causal"]],
         yes[one["capabilities"]["full"]], yes[one["capabilities"]["decoding"]], yes[one["capabilities"]["gradients"]])
        for one in listed
    ]  # fmt: skip
    lines += table(("method", "time", "memory", "causal", "not causal", "decoding", "gradients"), rows)
    for one in listed:
        can = one["capabilities"]
        lines += [f"## `{one['name']}` {{ #{one['name']} }}", "", f"{cell(one['description'])}.", ""]
        lines += [f"Devices: {', '.join(can['devices'])}. Dtypes: {', '.join(can['dtypes'])}.", ""]
        if one["options"]:
            lines += table(("option", "default", "values", "meaning"), map(option_row, one["options"]))
        if one["diagnostics"]:
            lines += table(("diagnostic", "unit", "meaning"), map(diagnostic_row, one["diagnostics"]))
    return "\n".join(lines)


def option_row(option):
    """A row of the options of a method."""
    values = ", ".join(option["choices"])
    if option["max"] is not None:
        values = f"{option['min']} to {option['max']}"
    return code(option["name"]), code(shown(option["default"])), cell(values or option["type"]), cell(option["description"])


def diagnostic_row(diagnostic):
    return code(diagnostic["name"]), cell(diagnostic["unit"] or "–"), cell(diagnostic["description"])


def shown(value):
    """A value as it is written in a sweep file."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def kind_of(one):
    """The type of a column or a key, with its unit."""
    return f"{one['type']}, {one['unit']}" if one["unit"] else one["type"]


def columns(listed):
    """The page of the columns of a record, by their groups."""
    lines = ["# Columns of a record", "", "What `attnbench list columns` says, in the order of the columns of `records.csv`.", ""]
    for group in dict.fromkeys(one["group"] for one in listed):
        lines += [f"## {group.upper() if group == 'gpu' else group.capitalize()}", ""]
        rows = []
        for one in listed:
            if one["group"] == group:
                only = f" Of {', '.join(one['methods'])}." if one.get("methods") else ""
                rows.append((code(one["name"]), cell(kind_of(one)), cell(one["description"] + only)))
        lines += table(("column", "type, unit", "meaning"), rows)
    return "\n".join(lines)


def sweep_keys(listed):
    """The page of the keys of sweep files, by the tables that they are in."""
    lines = ["# Keys of a sweep file", "", "What `attnbench list keys` says. [Writing a sweep](../sweeps.md) has examples, and says how", ""]
    lines[-1:] = ["ranges and ratios of an axis are written. Each axis may also be a list of values.", ""]
    for name in dict.fromkeys(one["table"] for one in listed):
        lines += [f"## `[{name}]` {{ #{name} }}" if name else "## Before the first table { #top }", ""]
        rows = []
        for one in listed:
            if one["table"] == name:
                kind = ": ".join([kind_of(one), *([", ".join(one["choices"])] if one["choices"] else [])])
                rows.append((code(one["key"]), cell(kind), code(shown(one["default"])), cell(one["description"])))
        lines += table(("key", "type, unit, values", "default", "meaning"), rows)
    return "\n".join(lines)


def build(out, program, pages=None):
    """Builds the site into a folder. Raises SiteError that says what is wrong."""
    said = []
    log = logging.getLogger("mkdocs")
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())
    log.addHandler(handler)
    try:
        config = load_config(str(SITE / "mkdocs.yml"), site_dir=str(out))
        config.plugins["source"] = Source(program, pages)
        mkdocs.build(config)
    except (Abort, BuildError) as error:
        raise SiteError("\n".join([*said, str(error)])) from error
    finally:
        log.removeHandler(handler)
    if said:
        raise SiteError("\n".join(said))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build/site", help="folder for the site (default: build/site)")
    parser.add_argument("--program", type=Path, default=ROOT / "build/attnbench", help="the driver (default: build/attnbench)")
    options = parser.parse_args()
    out = options.out.resolve()
    try:
        build(out, options.program)
    except SiteError as error:
        print(f"site: {error}", file=sys.stderr)
        return 1
    print(f"{out}/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
