"""Tests of the site that tools/site.py builds from the documents: it is complete, its links hold, it loads nothing from elsewhere, and
its reference is what the program says."""

import html
import importlib.util
import re
import subprocess
import sys

import pytest
from conftest import HANG_S, ROOT, strict_json

pytest.importorskip("mkdocs")
yaml = pytest.importorskip("yaml")

SPEC = importlib.util.spec_from_file_location("attnbench_site", ROOT / "tools/site.py")
site = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(site)


@pytest.fixture(scope="module")
def built(build, made_once):
    """The folder of the site."""

    def make(folder):
        words = [sys.executable, ROOT / "tools/site.py", "--out", folder / "site", "--program", build / "attnbench"]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=HANG_S, check=False)
        assert done.returncode == 0, done.stderr

    return made_once("site", make) / "site"


@pytest.fixture(scope="module")
def said(build):
    """A function that returns what `attnbench list WHAT` says."""

    def ask(what):
        words = [build / "attnbench", "list", what, "--format", "json"]
        return strict_json(subprocess.run(words, cwd=ROOT, capture_output=True, check=True, timeout=HANG_S).stdout.decode())

    return ask


def text_of(path):
    """What a reader sees of the contents of a page, with single spaces."""
    inside = path.read_text("utf-8").partition("<article")[2].partition("</article>")[0]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", re.sub(r"</t[dh]>|<br>", " ", inside))).split())


def links_of_navigation(built):
    page = (built / "index.html").read_text("utf-8")
    return re.findall(r'<a href="([^"#]+)" class="md-(?:nav|tabs)__link', page)


def small_pages(tmp_path, text):
    """Pages as Source takes them, of which docs/slurm.md has this text."""
    changed = tmp_path / "changed.md"
    changed.write_text(text)
    return {page: ROOT / page for page in site.tracked("*.md") if "tests" not in page.parts} | {site.Path("docs/slurm.md"): changed}


def test_each_document_is_a_page_that_the_navigation_names(built):
    documents = [page for page in site.tracked("*.md") if "tests" not in page.parts]
    assert len(documents) > 20
    for page in documents:
        there = page.with_name("index.html") if page.name == "README.md" else page.with_suffix(".html")
        assert (built / there).is_file(), page
        # The first page is named "." in its own navigation.
        assert str(there) in links_of_navigation(built) or there.parent == site.Path(), page
    # No page is named after a file.
    titles = re.findall(r'<span class="md-ellipsis">\s*(.*?)\s*</span>', (built / "index.html").read_text("utf-8"), re.DOTALL)
    assert titles and not [title for title in titles if title in ("README", "index") or title.endswith(".md")]


def test_no_page_loads_anything_from_elsewhere(built):
    pages = list(built.rglob("*.html"))
    assert len(pages) > 30
    loading = r"""<(?:script|img|iframe|source)[^>]*\ssrc=["']?(?:https?:)?//|<link[^>]*\srel="stylesheet"[^>]*(?:https?:)?//|@import"""
    assert not [page for page in pages if re.search(loading, page.read_text("utf-8"))]
    # A stylesheet may name no font and no picture of another host.
    sheets = list(built.rglob("*.css"))
    assert sheets and not [sheet for sheet in sheets if re.search(r"url\(['\"]?(?:https?:)?//", sheet.read_text("utf-8"))]


def test_the_site_is_small_enough_to_be_sent(built):
    assert sum(path.stat().st_size for path in built.rglob("*")) < 40e6


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("# A\n\n[there](nowhere.md)\n", ["docs/slurm.md", "nowhere.md"]),
        ("# A\n\n[there](nowhere.toml)\n", ["docs/slurm.md", "nowhere.toml"]),
        ("# A\n\n[there](using.md#no-such-heading)\n", ["docs/slurm.md", "#no-such-heading"]),
        ("# A\n\n[there](#no-such-heading)\n", ["docs/slurm.md", "#no-such-heading"]),
        ("# A\n\n![there](nowhere.png)\n", ["docs/slurm.md", "nowhere.png"]),
        ("# A\n\n<a href='nowhere.html'>there</a>\n", ["docs/slurm.md", "nowhere.html"]),
        ("# A\n\n<a href='using.html#nowhere'>there</a>\n", ["docs/slurm.md", "using.html#nowhere"]),
        ("# A\n\n<img src='https://example.org/a.png'>\n", ["docs/slurm.html", "https://example.org/a.png", "elsewhere"]),
        ("# A\n\n<script src='//example.org/a.js'></script>\n", ["docs/slurm.html", "//example.org/a.js", "elsewhere"]),
    ],
)
def test_a_wrong_link_is_refused_with_its_page(text, named, build, tmp_path):
    with pytest.raises(site.SiteError) as refused:
        site.build(tmp_path / "out", build / "attnbench", small_pages(tmp_path, text))
    for part in named:
        assert part in str(refused.value)


def test_a_page_that_the_navigation_lacks_is_refused(build, tmp_path):
    pages = small_pages(tmp_path, "# A\n")
    with pytest.raises(site.SiteError, match=r"(?s)not included in the \"nav\".*docs/new\.md"):
        site.build(tmp_path / "out", build / "attnbench", pages | {site.Path("docs/new.md"): tmp_path / "changed.md"})


def test_a_page_that_the_navigation_names_has_to_exist(build, tmp_path):
    pages = small_pages(tmp_path, "# A\n")
    del pages[site.Path("docs/gate.md")]
    with pytest.raises(site.SiteError, match=r"docs/gate\.md"):
        site.build(tmp_path / "out", build / "attnbench", pages)


def test_the_reference_has_every_command_with_its_help(built, build):
    text = text_of(built / "docs/reference/commands.html")
    commands = re.findall(r'^    \{"([a-z]+)", "', (ROOT / "harness/cli/main.cpp").read_text("utf-8"), re.MULTILINE)
    assert len(commands) > 15
    for command in commands:
        printed = subprocess.run([build / "attnbench", command, "--help"], capture_output=True, text=True, check=True).stdout
        assert " ".join(printed.split()) in text, command


def test_the_reference_has_every_method_with_its_options(built, said):
    text = text_of(built / "docs/reference/methods.html")
    for method in said("methods"):
        assert " ".join(method["description"].split()) in text, method["name"]
        assert f" {method['name']} {method['time_order']} {method['memory_order']} " in text
        for option in method["options"]:
            assert f"{option['name']} {site.shown(option['default'])} " in text, (method["name"], option["name"])
            assert " ".join(option["description"].split()) in text


def test_the_reference_has_every_column_with_its_unit_and_meaning(built, said):
    text = text_of(built / "docs/reference/columns.html")
    columns = said("columns")
    assert len(columns) > 80
    for column in columns:
        unit = f", {column['unit']}" if column["unit"] else ""
        assert f" {column['name']} {column['type']}{unit} {' '.join(column['description'].split())}" in text, column["name"]


def test_the_reference_has_every_key_of_a_sweep_file_with_its_table(built, said):
    text = text_of(built / "docs/reference/sweep-keys.html")
    for key in said("keys"):
        table = text.partition(f"[{key['table']}]¶" if key["table"] else "Before the first table¶")[2]
        assert f" {key['key']} {key['type']}" in table, key["key"]
        assert " ".join(key["description"].split()) in table


def test_the_gallery_has_each_shipped_result(built):
    page = (built / "docs/gallery.html").read_text("utf-8")
    results = sorted({path.parts[1] for path in site.tracked("results/*")})
    assert "figure1" in results
    for name in results:
        part = page.partition(f'<h2 id="{name}">')[2].partition("<h2 ")[0]
        assert "revision " in part and "processors" in part, name
        again = [
            words for words in re.findall(r"build/attnbench ([^\n<]+)", html.unescape(re.sub(r"</?(?:span|a)\b[^>]*>", "", part)))
            if words.split()[0] in ("sweep", "train", "generate", "latency", "throughput", "gate")
        ]  # fmt: skip
        assert again, name
        for picture in site.tracked(f"results/{name}/**/*.png", f"results/{name}/*.png"):
            assert f'src="../{picture}"' in part, picture
            assert (built / picture).is_file() and (built / picture.with_suffix(".svg")).is_file()


def test_a_result_without_a_place_in_the_gallery_is_refused(build, monkeypatch):
    tracked = site.tracked
    more = {"results/*": [site.Path("results/new/machine/records.jsonl")]}
    monkeypatch.setattr(site, "tracked", lambda *patterns: tracked(*patterns) + more.get(patterns[0], []))
    with pytest.raises(site.SiteError, match=r"gallery\.toml and results/ differ in new"):
        site.Source(build / "attnbench").gallery()


def test_links_to_sources_and_folders_show_them(built):
    assert (built / "examples/plugin/index.html").is_file()
    assert "sliding_window.cpp" in text_of(built / "examples/plugin/index.html")
    shown = built / "examples/sliding_window.py.txt"
    assert shown.read_text("utf-8") == (ROOT / "examples/sliding_window.py").read_text("utf-8")


def test_the_index_of_the_search_has_every_page(built):
    index = strict_json((built / "search/search_index.json").read_text("utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    pages = {str(path.relative_to(built)) for path in built.rglob("*.html")} - {"404.html"}
    assert pages <= found
    # As a script, for pages that are read from a folder.
    assert (built / "search/search_index.js").read_text("utf-8").startswith("var __index = {")


def test_the_search_works_where_pages_are_read_from_a_folder(built, chromium):
    page = chromium.new_page(viewport={"width": 1400, "height": 900})
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((built / "docs/tutorial.html").as_uri())
    page.click("input.md-search__input")
    page.keyboard.type("concentration")
    page.wait_for_selector(".md-search-result__link", timeout=120_000)
    found = page.eval_on_selector_all(".md-search-result__link", "links => links.map(link => link.href)")
    assert any("numbers.html" in link for link in found)
    assert asked and all(url.startswith(("file:", "data:")) for url in asked)
