"""Writes the page of `attnbench report`: HTML with its data, its style and its program inside, so that
it can be read without a network."""

import argparse
import base64
import gc
import io
import shlex
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import altair
import vl_convert

from attnplots.figures import interactive
from attnplots.figures.experiments import images
from attnplots.marks import files, sheet
from attnplots.published import claims, quantities, verdicts
from attnplots.records import driver, environment, results
from attnplots.records import rows as data
from attnplots.records.environment import Environment
from attnplots.records.methods import PYTHON
from attnplots.records.records import Record, Records
from attnplots.records.rows import method_text
from attnplots.records.text import count_of, printable
from attnplots.records.words import bytes_text, common_text, listed, share, span
from attnplots.report import answers, changes, folders, gates, html, lines, vega
from attnplots.report.folders import Experiment, Folder

FOLDER = Path(__file__).parent

def _seconds(value: float) -> str:
    return f"{value:g} s"


# Settings that the page shows: what they are called there, and how their values are written.
SETTINGS: dict[str, tuple[str, Callable[[float], str]]] = {
    "processes": ("processes for each case", str),
    "noise_target": ("interval asked for", lambda part: f"± {share(part)}"),
    "time_budget_s": ("sampling time of a process", _seconds),
    "warmup_s": ("warm-up", _seconds),
    "deadline_s": ("time limit of a case", _seconds),
    "memory_limit_bytes": ("memory limit", bytes_text),
    "max_disturbance": ("a sample counts as disturbed if the machine was slower than at its best by more than", share),
    "injected_slowdown_percent": ("injected slowdown", lambda percent: f"{percent:g} %"),
}


@dataclass
class Sweep:
    """What the page shows of a sweep. `chart` and `history_chart` are names of members of the data."""

    id: str
    title: str
    folders: list[dict[str, Any]]
    answers: answers.Answers
    of: str
    absent: list[lines.Absent]
    chart: str
    comparison: changes.Comparison | None = None
    history: changes.History | None = None
    history_chart: str = ""

    @property
    def crossings(self) -> list[str]:
        """Sentences about the lengths from which on methods are faster, with their settings."""
        return [f"{setting.title}: {text}." for setting in self.answers.settings for text in setting.crossings]

    @property
    def least_memory(self) -> list[str]:
        """Sentences about the methods that need the least memory, with their settings."""
        return [f"{setting.title}: {text}." for setting in self.answers.settings for text in setting.least_memory]


@dataclass
class Training:
    """What the page shows of a folder of an experiment."""

    id: str
    title: str
    folder: dict[str, Any]
    chart: str = ""
    ended: list[dict[str, str]] = field(default_factory=list)
    speeds: list[dict[str, str]] = field(default_factory=list)
    picture: str = ""


def render(found: folders.Found, title: str) -> str:
    """The page of HTML about what was found."""
    # The bundle of Vega and the analyses of the folders take seconds, so other processes make them meanwhile.
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as others:
        return _render(found, title, others)


def _render(found: folders.Found, title: str, others: Executor) -> str:
    bundle = others.submit(_bundle)
    data: dict[str, Any] = {"specification": vega.specification(), "charts": {}, "lines": {}}
    sweeps = [_sweep(k, name, of, data, others) for k, (name, of) in enumerate(found.sweeps.items())]
    experiments = [_experiment(k, one, data) for k, one in enumerate(found.experiments)]
    if found.gates:
        data["lines"]["gate"] = vars(lines.gate_lines(found.gates))
        data["charts"]["gate"] = vega.for_page(interactive.gate_chart(gates.methods_of(found.gates)), "gate")
    return html.template("page.html").render(
        title=title,
        sweeps=sweeps,
        experiments=experiments,
        gates=found.gates,
        gate_history=gates.history(found.gates),
        paper=_paper(found),
        numbers_head=verdicts.NumbersRow._fields,
        bundle=html.closed(bundle.result(), "script"),
        data=html.json_inside(data),
    )


def _bundle() -> str:
    """Vega with the version of Vega-Lite that Altair writes, as a program for the browser."""
    version = ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    return str(vl_convert.javascript_bundle(vl_version=version))


# ---------------------------------------------------------------- sweeps


def _sweep(number: int, name: str, of: list[Folder], data: dict[str, Any], others: Executor) -> Sweep:
    """What the page shows of a sweep; its lines and charts are added to the data."""
    newest = of[-1]
    analysis = others.submit(driver.ask, "analyse", newest.path)
    told = lines.sweep_lines(of)
    key = f"sweep-{number}"
    columns = [column["name"] for column in told.columns]
    together = Records(record for folder in of for record in folder.records)
    labels = [folder.label for folder in of]
    data["lines"][key] = vars(told)
    data["charts"][key] = vega.for_page(interactive.sweep_chart(together, labels, columns), key)
    shown = Sweep(
        key, name, [_folder(folder) for folder in of], answers.find(newest, analysis.result()),
        newest.label if len(of) > 1 else "", lines.absent(newest), key,
    )  # fmt: skip
    if len(of) == 2:
        shown.comparison = changes.between(*of)
    elif len(of) > 2:
        shown.history = changes.over_time(of)
        shown.history_chart = f"{key}-history"
        data["charts"][shown.history_chart] = vega.for_page(interactive.history_chart(together, labels), key)
    return shown


def _folder(folder: Folder) -> dict[str, Any]:
    settings = {
        words: shown(folder.settings[name])
        for name, (words, shown) in SETTINGS.items()
        if isinstance(folder.settings.get(name), int | float) and folder.settings[name]
    }
    present, _ = data.select_present_devices(folder.records)
    return {
        "label": folder.label,
        "common": common_text(present) if len(present) else "",
        "description": folder.description,
        "machine": _machine(folder.environment, folder.records, folder.machine),
        "build": environment.build_text(folder.environment) or "unknown",
        "date": environment.dates_text(folder.records),
        "settings": settings,
        "commands": _commands(folder),
    }


def _machine(known: Environment, lines: Sequence[Record], told: dict[str, Any]) -> dict[str, str]:
    """The processor, the threads, the memory, the system and the GPU of a machine, each in words; what the folder does
    not say is called not recorded."""
    own = [line for line in lines if not line.get("external_source")]
    threads = sorted({line["threads"] for line in own if line.get("threads")})
    count = known.get("processors")
    on = f" on {count_of(count, 'processor')}" if count else ""
    set_of = f", {known['instruction_set']}" if known.get("instruction_set") else ""
    said = {
        "processor": f"{known['cpu_model']}{set_of}" if known.get("cpu_model") else "",
        "threads": f"{listed([str(n) for n in threads])}{on}" if threads else on.removeprefix(" on "),
        "memory": _memory(own, told.get("memory_bytes")),
        "system": str(told.get("system") or ""),
    }
    gpu = {"GPU": str(known["gpu"])} if known.get("gpu") else {}
    return {name: text or "not recorded" for name, text in said.items()} | gpu


def _memory(lines: Sequence[Record], total: Any) -> str:
    """The memory of a machine, and how much of it a case may use."""
    limits = [line["memory_limit_bytes"] for line in lines if line.get("memory_limit_bytes")]
    limit = f"a case may use {span(sorted(limits), bytes_text)}" if limits else ""
    own = bytes_text(total) if isinstance(total, int) and total > 0 else "not recorded"
    return f"{own}; {limit}" if limit else own


def _commands(folder: Folder) -> list[str]:
    """The commands that measure a folder again, with the build that measured it if that is known."""
    revision = folder.environment.get("revision")
    if not revision or folder.environment.get("dirty"):
        return folder.commands
    built = [command.replace("attnbench ", "build/attnbench ", 1) for command in folder.commands]
    targets = "make build python" if any(PYTHON in str(record["method"]) for record in folder.records) else "make build"
    return [f"git checkout {shlex.quote(str(revision))} && {targets}", *built]


# ---------------------------------------------------------------- experiments


def _experiment(number: int, one: Experiment, data: dict[str, Any]) -> Training:
    key = f"experiment-{number}"
    shown = Training(key, one.label, {
        "common": "",
        "date": environment.dates_text([*one.points, *one.ended, *one.generations]),
        "machine": _machine(one.environment, [*one.points, *one.ended, *one.generations], {}),
        "build": environment.build_text(one.environment) or "unknown",
    })  # fmt: skip
    if one.points:
        chart = interactive.training_chart(one.points)
        names = ["method", "seed", "_name", *(q.column for q in (*chart.x, *chart.y))]
        rows = [[method_text(p["method"]) if n == "_name" else lines.plain(p.get(n)) for n in names] for p in one.points]
        data["lines"][key] = {"columns": [{"name": n, "unit": "", "about": ""} for n in names], "usual": [], "rows": rows}
        data["charts"][key] = vega.for_page(chart, key)
        shown.chart = key
    shown.ended = [_ended(line) for line in one.ended]
    order = ("dataset", "method", "device", "batch")
    shown.speeds = [_speed(row) for row in sorted(one.generations, key=lambda row: [row[name] for name in order])]
    if one.has_images:
        shown.picture = _picture(one.path)
    return shown


def _ended(line: dict[str, Any]) -> dict[str, str]:
    """How a training ended: its method, seed, updates and the quantities that it has."""
    found = {"method": method_text(line["method"]), "seed": str(line.get("seed", "")),
             "updates": str(line.get("update", ""))}  # fmt: skip
    for name in quantities.QUANTITIES:
        if line.get(name) is not None:
            extra = " (extrapolated)" if line.get(quantities.EXTRAPOLATED.get(name, "")) else ""
            found[quantities.quantity_name(name)] = quantities.number_text(name, line[name]) + extra
    if line.get("outcome") not in (None, "measured", "finished"):
        found["outcome"] = f"{line['outcome']} {line.get('failure_kind') or ''}".strip()
    return found


def _speed(row: results.Row) -> dict[str, str]:
    """The speed of generation of one case."""
    extra = " (extrapolated)" if row.get("extrapolated") else ""
    return {
        "data": str(row["dataset"]),
        "method": method_text(row["method"]),
        "device": str(row["device"]),
        "batch": str(row["batch"]),
        "s/image": quantities.number_text("s_per_image", row["s_per_image"]) + extra,
        "images/s": quantities.number_text("images_per_s", row["images_per_s"]) + extra,
    }


def _picture(folder: Path) -> str:
    """The grids of images of a folder as the URL of a PNG file that is inside the URL."""
    with sheet.context():
        figure = files.draw(images.describe(images.load(folder), environment.load(folder)))
        target = io.BytesIO()
        figure.savefig(target, format="png", dpi=150, metadata=files.METADATA["png"])
    return "data:image/png;base64," + base64.b64encode(target.getvalue()).decode()


@dataclass
class Paper:
    """What the experiments say about the paper: the claims that they decide, how many claims need
    other results, and the published tables of which they have numbers."""

    decided: list[claims.Verdict] = field(default_factory=list)
    others: int = 0
    tables: list[verdicts.Numbers] = field(default_factory=list)


def _paper(found: folders.Found) -> Paper:
    published = Path(__file__).resolve().parents[3] / "experiments" / "published"
    if not found.experiments or not (published / "claims.toml").exists():
        return Paper()
    rows = [row for one in found.experiments for row in results.read_folder(one.path)]
    here = results.Results(rows, {str(one.path): one.environment for one in found.experiments})
    made = claims.load_claims(published / "claims.toml")
    texts = results.load_published(sorted(published.glob("*.csv")))
    verdicts_here = claims.decided(texts, here, made)
    decided = [verdict for verdict in verdicts_here if verdict.verdict in (claims.HOLDS, claims.FAILS)]
    tables = []
    for table in verdicts.numbers(texts, here, made):
        ours = [row for row in table.rows if row.ours]
        if ours:
            tables.append(replace(table, rows=ours))
    return Paper(decided, len(verdicts_here) - len(decided), tables)


# ---------------------------------------------------------------- the command


def main(root: Path, parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """Writes the page. `attnbench report` describes the options."""
    parser.add_argument("folders", nargs="+", type=Path)
    html.add_options(parser, "report.html")
    options = parser.parse_args(arguments)
    # Looking for garbage among millions of values would take a tenth of the time, and there is little of it.
    gc.disable()
    found = folders.load(options.folders)
    names = [*found.sweeps, *(one.label for one in found.experiments), *(["gate"] if found.gates else [])]
    html.write(options.out, render(found, printable(options.title or ", ".join(names))))
