"""Pages of HTML with their data, style and program inside, so that they can be read without a network."""

import argparse
import json
from pathlib import Path
from typing import Any

import jinja2

from attnplots.records.rows import method_text, size_text
from attnplots.records.text import RecordsError, count_of, printable

FOLDER = Path(__file__).parent


def template(name: str) -> jinja2.Template:
    """A template of this folder, which extends frame.html."""
    place = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined, finalize=_safe,
    )  # fmt: skip
    place.filters |= {"size": size_text, "count_of": count_of, "method": method_text, "inside": _inside}
    return place.get_template(name)


def _safe(value: Any) -> Any:
    """What a template shows of a value: texts without characters that cannot be printed."""
    return printable(value) if type(value) is str else value


def _inside(name: str, element: str) -> str:
    """The text of a file of this folder for the inside of an element."""
    return closed((FOLDER / name).read_text("utf-8"), element)


def closed(text: str, element: str) -> str:
    """The text, which is trusted, for the inside of an element that only its end tag ends."""
    return text.replace(f"</{element}", f"<\\/{element}")


def json_inside(value: Any) -> str:
    """A value as JSON for the inside of a script element, where `<` could begin an end tag."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def add_options(parser: argparse.ArgumentParser, out: str) -> None:
    """Adds the options of every command that writes a page, by default the file `out`."""
    parser.add_argument("-o", "--out", type=Path, default=Path(out))
    parser.add_argument("--title")


def write(out: Path, text: str) -> None:
    """Writes a page and says how large it is."""
    if out.is_dir():
        raise RecordsError(f"--out {out}: a folder; expected the name of a file such as report.html")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, "utf-8")
    print(printable(f"{out}: {len(text.encode()) / 1e6:.1f} MB"))
