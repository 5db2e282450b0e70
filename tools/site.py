"""Builds the documents as a site with MkDocs, and writes the pages that the program and the results say.

Usage: python tools/site.py [--out FOLDER] [--program FILE]

Copies the pages of the project, with the pictures and the files that they link to, into a folder of the same
structure, so that their links hold. Adds the reference, which `attnbench` prints, and the gallery of the figures in
results/. MkDocs then checks every link between pages, and fails if one leads nowhere.
"""

import argparse
import html
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFIGURATION = ROOT / "docs" / "site" / "mkdocs.yml"
# A link or a picture in Markdown: what is shown, and where it leads to.
LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s]+)\)")
# The end of the address of every page.
MORE = ("LICENSE", "CITATION.cff")
# Files that are shown as text, in their folder, with this ending added.
SHOWN_AS_TEXT = ".txt"
GALLERY = "docs/gallery.md"


def tracked(pattern):
    """The files of the project that fit a pattern, as git knows them."""
    found = subprocess.run(["git", "ls-files", pattern], cwd=ROOT, check=True, capture_output=True, text=True)
    return [Path(line) for line in found.stdout.splitlines()]


class Site:
    """The folder that MkDocs makes the site from."""

    def __init__(self, source, program):
        self.source, self.program = source, program

    def build(self):
        shutil.rmtree(self.source, ignore_errors=True)
        pages = [page for page in tracked("*.md") if "tests" not in page.parts]
        for page in pages:
            self.add_page(page)
        for page, text in self.reference().items():
            self.write(page, text)
        self.write(GALLERY, self.gallery())

    def write(self, page, text):
        target = self.source / page
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")

    def add_page(self, page):
        """Copies a page and the files that it links to."""
        text = (ROOT / page).read_text("utf-8")
        self.write(page, LINK.sub(lambda found: f"{found[1]}({self.target_of(page, found[2])})", text))

    def target_of(self, page, link):
        """Where a link of a page leads to in the site. Links out of the project stay as they are."""
        path, hash_sign, anchor = link.partition("#")
        if not path or "://" in path or path.startswith("mailto:"):
            return link
        target = (ROOT / page.parent / path).resolve()
        if not target.exists():
            raise SystemExit(f"site: {page}: the link {link} leads nowhere")
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

    def copy(self, file, target):
        (self.source / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, self.source / target)

    def add_listing(self, folder):
        """A page that lists the files of a folder, which are shown as text."""
        page = folder / "README.md"
        if (ROOT / page).exists():
            return page
        lines = [f"# {folder}", ""]
        for file in tracked(f"{folder}/*"):
            shown = file.with_name(file.name + SHOWN_AS_TEXT)
            self.copy(file, shown)
            lines.append(f"- [{file.relative_to(folder)}]({os.path.relpath(shown, folder)})")
        self.write(page, "\n".join(lines) + "\n")
        return page

    # ------------------------------------------------------------ what the program says

    def ask(self, *words):
        said = subprocess.run([self.program, *words], cwd=ROOT, check=True, capture_output=True, text=True)
        return said.stdout

    def reference(self):
        """The pages of the reference, by their paths."""
        commands = re.findall(r"^  ([a-z]+) {2,}\S", self.ask("--help").partition("Commands:")[2], re.MULTILINE)
        parts = ["# Commands", "", "What `attnbench --help` prints for each command.", ""]
        for words in ([], *([name] for name in commands)):
            parts += [f"## {' '.join(['attnbench', *words])}", "", "```text", self.ask(*words, "--help").rstrip(), "```", ""]
        schema = json.loads(self.ask("list", "schema"))
        return {
            "docs/reference/commands.md": "\n".join(parts),
            "docs/reference/methods.md": self.page("Methods", "What `attnbench list methods` prints.", "methods"),
            "docs/reference/columns.md": self.page("Columns of a record", "What `attnbench list columns` prints.", "columns"),
            "docs/reference/sweep-keys.md": sweep_keys(schema),
        }

    def page(self, title, about, what):
        return f"# {title}\n\n{about}\n\n{self.ask('list', what, '--format', 'markdown')}"

    # ------------------------------------------------------------ results

    def gallery(self):
        """The page of all figures in results/."""
        lines = ["# Gallery", "", "The figures of the results that the project ships, and the command that measures each again.", ""]
        for name in sorted({path.parts[1] for path in tracked("results/*.png")}):
            lines += [f"## {name}", ""]
            for picture in tracked(f"results/{name}/**/*.png"):
                self.copy(picture, picture)
                told = said(picture.parent)
                lines += [f"![{picture.stem} of {name}]({os.path.relpath(picture, 'docs')})", ""]
                lines += [f"{told}", ""] if told else []
        return "\n".join(lines)


def said(folder):
    """What a folder of results is, and which machine and build made it, in a sentence."""
    for place in (folder, *sorted((ROOT / folder).glob("run-*"))):
        path = ROOT / place / "environment.json"
        if path.exists():
            told = json.loads(path.read_text("utf-8"))
            build = told.get("environment", {})
            about = html.escape(told.get("description") or "")
            return f"{about}{'. ' if about else ''}{build.get('cpu_model')}, revision {build.get('revision')}."
    return ""


def sweep_keys(schema):
    """The page of the keys of sweep files: the axes and the settings of the schema."""
    lines = ["# Keys of a sweep file", "", "The axes, which `[[axes]]` lists values of, and the settings of the other tables.", ""]
    for title, wanted in (("Axes", "axes"), ("Settings", "settings")):
        lines += [f"## {title}", "", "| key | type | unit | default | meaning |", "| --- | --- | --- | --- | --- |"]
        for key in schema.get(wanted, []):
            default = json.dumps(key["default"]) if key.get("default") is not None else (key.get("follows") or "–")
            cells = [f"`{key['name']}`", key["type"], key.get("unit") or "–", f"`{default}`", key["description"]]
            lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build/site", help="folder for the site (default: build/site)")
    parser.add_argument("--program", type=Path, default=ROOT / "build/attnbench", help="the driver (default: build/attnbench)")
    options = parser.parse_args()
    out = options.out.resolve()
    source = out.with_name(out.name + "-source")
    Site(source, options.program).build()
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", CONFIGURATION, "--site-dir", out]
    done = subprocess.run(words, env=os.environ | {"ATTNBENCH_SITE_SOURCE": str(source)}, check=False)
    if done.returncode == 0:
        print(f"{out}/index.html")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
