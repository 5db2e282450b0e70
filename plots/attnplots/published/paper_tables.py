"""The tables of the paper with its numbers beside ours, in Markdown and in LaTeX, and the table of the
lengths from which on a GPU is faster than the CPU."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from attnplots.published import claims, verdicts
from attnplots.published.quantities import EXTRAPOLATED, QUANTITIES, Value, number_text, quantity_name
from attnplots.records import crossovers, driver, records, results
from attnplots.records.crossovers import CROSSES, NEVER, Crossover
from attnplots.records.records import RecordsError
from attnplots.records.results import GENERATIONS, TRAININGS, Results, Row
from attnplots.records.rows import method_text, protocol_text, setting_text
from attnplots.records.text import printable

KINDS = ("markdown", "latex")
NUMBERS = ("1", "2", "3", "4", "5")
ABSENT = "–"
# The beginning of the names of methods with a cache. They generate with the models of the method without a cache, and have no
# trainings of their own.
CACHED = "stateful-"
# In a cell, letters in brackets refer to the notes below the table.
Cell = list[tuple[str, str]]


@dataclass
class Table:
    """A table: its caption and label, the names of its columns, the names above groups of columns (with
    the first column and the number of columns of each), its rows and its notes. A cell has texts, each
    with the letter of a note or an empty text. `aligned` has the alignment of each column, l or r."""

    caption: str
    label: str
    head: list[str]
    aligned: str
    rows: list[list[Cell]]
    groups: list[tuple[str, int, int]] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)

    def text(self, kind: str) -> str:
        """The table as one of KINDS."""
        return printable_lines(_markdown(self) if kind == "markdown" else _latex(self))


def printable_lines(lines: Iterable[str]) -> str:
    """Lines of text in which every character is printable."""
    return "\n".join(printable(line) for line in lines) + "\n"


def plain(text: str) -> Cell:
    """A cell with a text that has no note."""
    return [(text, "")]


# ---------------------------------------------------------------- the paper's tables


def paper_table(number: str, root: Path, project: Path) -> Table:
    """Table `number` of the paper with our numbers from the folder `root`. Raises RecordsError if that
    has none of them."""
    folder = project / "experiments" / "published"
    published = results.load_published(sorted(folder.glob("*.csv")))
    rows = [row for row in published if row.get("table") == number]
    known = claims.load_claims(folder / "claims.toml")
    found = results.load(root)
    columns = list(dict.fromkeys(_column(row) for row in rows))
    cases: dict[tuple[str, str], dict[str, tuple[str, Cell]]] = {}
    notes = _Notes(found, root)
    commands: list[str] = []
    for row in rows:
        quantity = _quantity(row)
        ours = verdicts.ours(row, quantity, found, known.stand_ins)
        cell = [(_value_text(quantity, one.value), notes.letter(one, quantity, row["dataset"])) for one in ours]
        if not ours and (command := known.commands.get(_command_key(row))):
            on = " on a GPU" if row.get("device") == "cuda" and row.get("batch") == 1 else ""
            commands.append(f"`{command.removeprefix('build/')}`{on}")
        printed = _printed(row, quantity)
        case = cases.setdefault((row["dataset"], row["method"]), {})
        case[_column(row)] = printed, cell or plain(ABSENT)
    needed = list(dict.fromkeys(commands))
    if not notes.texts:
        raise RecordsError(f"{root}: table {number} needs the results of {' or '.join(needed)}, found none")
    nothing = ABSENT, plain(ABSENT)
    body = [
        [plain(dataset), plain(method_text(method)),
         *(cell for name in columns for cell in _pair(case.get(name, nothing)))]
        for (dataset, method), case in cases.items()
    ]  # fmt: skip
    told = [(letter, text) for text, letter in notes.texts.items()]
    if any(cell == plain(ABSENT) for line in body for cell in line):
        why = ["not measured"]
        if needed:
            why.append(f"to measure: {', '.join(needed)}")
        if any(row["method"].startswith(CACHED) and row["source"] == TRAININGS for row in rows):
            why.append("a method with a cache generates with the model of the one without, and has its bits/dim")
        told.append((ABSENT, "; ".join(why)))
    machine = known.machines.get(f"Table {number}", "not stated")
    caption = f"Table {number} of Transformers are RNNs (arXiv 2006.16236): its numbers beside ours."
    return Table(
        f"{caption} Those of the paper are of {machine}.", f"tab:paper-{number}",
        ["data", "method", *["paper", "ours"] * len(columns)], "ll" + "rl" * len(columns), body,
        [(name, 2 + 2 * k, 2) for k, name in enumerate(columns)], told,
    )  # fmt: skip


def _pair(case: tuple[str, Cell]) -> tuple[Cell, Cell]:
    return plain(case[0]), case[1]


def _quantity(row: Row) -> str:
    return next(quantity for quantity in QUANTITIES if row.get(quantity) is not None)


def _column(row: Row) -> str:
    return quantity_name(_quantity(row)) + verdicts.select_device(row)


def _printed(row: Row, quantity: str) -> str:
    """A number of the paper with the digits that it is printed with. Phone error rates, which the file has as shares, are percentages."""
    return number_text(quantity, row[quantity]) if quantity == "phone_error_rate" else row["as_printed"]


def _value_text(quantity: str, value: Value) -> str:
    """A number of ours without an exponent, and the range of the seeds."""

    def text(number: float) -> str:
        shown = number_text(quantity, number)
        return f"{float(shown):.0f}" if "e" in shown else shown

    spread = "–".join(map(text, value.spread)) if value.spread else ""
    return text(value.number) + (f" ({spread})" if spread else "")


def _command_key(row: Row) -> str:
    """The key of the command that measures a number, in the file of claims."""
    if row["source"] == TRAININGS and row["method"].startswith(CACHED):
        return ""
    epoch = " epoch" if "epoch_s" in row else ""
    return f"{row['source']} {row['dataset']}{' batch 1' if row.get('batch') == 1 else ''}{epoch}"


class _Notes:
    """The notes on how our numbers were measured, each with a letter, in the order of their first use."""

    def __init__(self, found: Results, root: Path) -> None:
        self._found, self._root = found, root
        self.texts: dict[str, str] = {}

    def letter(self, one: verdicts.Ours, quantity: str, dataset: str) -> str:
        """The letter of the note on a number beside one that was published for a data set."""
        value = one.value
        parts = [f"{one.stand_in} in place of {dataset}"] if one.stand_in else []
        parts.append(one.where)
        if len(value.rows) > 1 and value.rows[0]["source"] != GENERATIONS:
            parts.append(f"median and range of {len(value.rows)} seeds")
        if any(row.get("extrapolated") or row.get(EXTRAPOLATED.get(quantity, "")) for row in value.rows):
            parts.append("extrapolated")
        machine = self._found.environments[one.folder].get("cpu_model", "")
        folder = Path(one.folder)
        place = folder.relative_to(self._root) if folder.is_relative_to(self._root) else folder
        text = f"{', '.join(parts)} ({place}{f'; {machine}' if machine else ''})"
        return self.texts.setdefault(text, _letters(len(self.texts)))


def _letters(index: int) -> str:
    """a to z, then aa, ab and so on."""
    first = _letters(index // 26 - 1) if index >= 26 else ""
    return first + chr(ord("a") + index % 26)


# ---------------------------------------------------------------- formats


def _markdown(table: Table) -> Iterator[str]:
    """Lines with columns as wide as their longest cell. The name of a group is in each of its columns."""
    above = {k: name for name, first, count in table.groups for k in range(first, first + count)}
    head = [f"{above[k]}, {name}" if k in above else name for k, name in enumerate(table.head)]
    body = [
        ["; ".join(f"{text} [{note}]" if note else text for text, note in cell).replace("|", "\\|") for cell in row]
        for row in table.rows
    ]
    wide = [max(3, *map(len, column)) for column in zip(head, *body, strict=True)]
    rules = ["-" * (n - 1) + (":" if side == "r" else "-") for n, side in zip(wide, table.aligned, strict=True)]

    def line(cells: Sequence[str]) -> str:
        sides = zip(cells, wide, table.aligned, strict=True)
        return f"| {' | '.join(c.rjust(n) if side == 'r' else c.ljust(n) for c, n, side in sides)} |"

    yield table.caption
    yield ""
    yield line(head)
    yield line(rules)
    yield from map(line, body)
    if table.notes:
        yield ""
        yield from (f"- {letter if letter == ABSENT else f'[{letter}]'}: {text}." for letter, text in table.notes)


# Characters that LaTeX reads as commands, and those that pdflatex does not know, as LaTeX writes them.
LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': "''", "–": "--", "—": "---", "−": "$-$", "×": r"$\times$", "÷": r"$\div$", "±": r"$\pm$",
    "≥": r"$\geq$", "≤": r"$\leq$", "≈": r"$\approx$", "∝": r"$\propto$", "µ": r"$\mu$", "μ": r"$\mu$", "²": "$^2$",
    "·": r"$\cdot$", "…": r"\ldots{}", "\u202f": r"\,", "\u00a0": "~",
}  # fmt: skip
# The last letter that the package inputenc knows without further packages; those before it are Latin.
LAST_LETTER = 0x17F


def escaped(text: str) -> str:
    """The text as LaTeX prints it; a character that pdflatex does not know becomes its number, as U+4E2D.
    What is between a pair of backquotes is a command, as in Markdown."""

    def one(character: str) -> str:
        unknown = ord(character) > LAST_LETTER
        return LATEX.get(character, f"U+{ord(character):04X}" if unknown else character)

    parts = ["".join(map(one, part)) for part in text.split("`")]
    if len(parts) % 2 == 0:
        return r"\textquoteleft{}".join(parts)
    return "".join(rf"\texttt{{{part}}}" if k % 2 else part for k, part in enumerate(parts))


def _latex(table: Table) -> Iterator[str]:
    def cell(texts: Cell) -> str:
        parts = [escaped(text) + (rf"\textsuperscript{{{note}}}" if note else "") for text, note in texts]
        return "; ".join(parts)

    yield r"% needs \usepackage{booktabs}"
    yield r"\begin{table}"
    yield r"\centering"
    yield rf"\caption{{{escaped(table.caption)}}}"
    yield rf"\label{{{table.label}}}"
    yield rf"\begin{{tabular}}{{{table.aligned}}}"
    yield r"\toprule"
    if table.groups:
        first = table.groups[0][1]
        names = [rf"\multicolumn{{{count}}}{{c}}{{{escaped(name)}}}" for name, _, count in table.groups]
        yield "& " * first + " & ".join(names) + r" \\"
        yield " ".join(rf"\cmidrule(lr){{{start + 1}-{start + count}}}" for _, start, count in table.groups)
    yield " & ".join(map(escaped, table.head)) + r" \\"
    yield r"\midrule"
    for row in table.rows:
        yield " & ".join(map(cell, row)) + r" \\"
    yield r"\bottomrule"
    yield r"\end{tabular}"
    for letter, text in table.notes:
        mark = f"{escaped(letter)}: " if letter == ABSENT else rf"\textsuperscript{{{letter}}} "
        yield rf"\par{{\footnotesize {mark}{escaped(text)}.\par}}"
    yield r"\end{table}"


# ---------------------------------------------------------------- break-even


def break_even(root: Path) -> Table:
    """From which length on the GPU is faster than the CPU, for each method of each folder that has
    cases of both. Raises RecordsError if there is none."""
    body: list[list[Cell]] = []
    machines: dict[str, str] = {}
    for path in sorted(root.rglob(records.FILE_NAME)):
        folder = path.parent
        loaded = records.load(folder)
        devices = {str(record.get("device")) for record in loaded if record["outcome"] == "measured"}
        if not {"cpu", "cuda"} <= devices:
            continue
        gpus = dict.fromkeys(str(record["gpu"]) for record in loaded if record.get("gpu"))
        cpus = dict.fromkeys(str(record["cpu_model"]) for record in loaded if record.get("cpu_model"))
        name = str(folder.relative_to(root)) if folder != root else folder.name
        lines = [_case(name, found) for found in crossovers.of_devices(driver.ask("analyse", folder))]
        if lines:
            body += lines
            machines[name] = f"{' / '.join(cpus)} and {' / '.join(gpus)}"
    if not body:
        raise RecordsError(
            f"{root}: break-even needs cases that were measured on a CPU and on a GPU, at two lengths or more, "
            "found none; on a machine with a GPU, `attnbench sweep latency` measures them"
        )
    where = "; ".join(f"{name} on {text}" for name, text in machines.items())
    caption = f"From which length N on the GPU is faster than the CPU, with 95 % intervals: {where}."
    return Table(caption, "tab:break-even", ["results", "protocol", "setting", "method", "faster"], "lllll", body)


def _case(folder: str, found: Crossover) -> list[Cell]:
    gpu = found.axes
    name = "GPU" if found.faster else "CPU"
    if found.verdict == CROSSES:
        text = f"{name} from N = {found.length:,.0f} ({found.low:,.0f} to {found.high:,.0f})"
    elif found.verdict == NEVER:
        text = f"{name} at every N from {found.first:,.0f} to {found.last:,.0f}"
    else:
        text = f"{found.verdict}: {found.reason}"
    shown = [gpu["dtype"], *(["causal"] if gpu.get("causal") else [])]
    if gpu.get("graph"):
        shown.append(setting_text(gpu, "graph"))
    cells = (folder, protocol_text(gpu), ", ".join(shown), method_text(gpu["method"]), text)
    return [plain(text) for text in cells]
