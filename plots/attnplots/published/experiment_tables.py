"""The tables that docs/experiments.md shows of the trainings and of the speed of generating images."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from attnplots.figures.experiments import image_speed
from attnplots.published import verdicts
from attnplots.published.quoted import NOTHING, machine_folder, provenance
from attnplots.records import results, trainings
from attnplots.records.methods import method_name
from attnplots.records.records import Record
from attnplots.records.results import Row
from attnplots.records.words import amount, share, span

# The data of the short speech training.
SPEECH = "synthesised-speech"


def _by_method(lines: Iterable[Record]) -> dict[str, list[Record]]:
    """The lines of each method, in the order of the figures; other methods are last."""
    found: dict[str, list[Record]] = {}
    for line in lines:
        found.setdefault(method_name(line["method"]), []).append(line)
    order = (*image_speed.ORDER, *found)
    return dict(sorted(found.items(), key=lambda pair: order.index(pair[0])))


# A function of the name of a method and of the last lines of its trainings that returns the cells after the name.
Cells = Callable[[str, list[Record]], list[str]]


def _training_table(
    root: Path, name: str, head: Sequence[str], cells: Cells, note: Callable[[list[Record]], str]
) -> list[str]:
    """A table with a line for each method of a training, and below it the note on all trainings, how long they took, and where they ran."""
    folder = _training_folder(root, name)
    ended = trainings.load_ended(folder) if folder else []
    lines = [line for line in ended if line.get("outcome") == "measured"]
    if folder is None or not lines:
        return NOTHING
    rows = [[f"`{method}`", *cells(method, own)] for method, own in _by_method(lines).items()]
    minutes = sum(line["training_s"] for line in lines) / 60
    count = "The training" if len(lines) == 1 else f"The {len(lines)} trainings"
    measured = f"{count} took {amount(minutes)} minutes on {provenance(folder, lines)}."
    return [*verdicts.table(["method", *head], rows), note(lines), measured]


def _training_folder(root: Path, name: str) -> Path | None:
    return machine_folder(root, name, trainings.ENDED_FILE_NAME)


def copy_table(root: Path) -> list[str]:
    """Losses and shares of correct symbols of the short copy task, from the lowest to the highest of the seeds."""

    def cells(_: str, lines: list[Record]) -> list[str]:
        return [
            span((line["validation_loss"] for line in lines), "{:.2g}".format),
            span((line["validation_accuracy"] for line in lines), share),
            span((1e3 / line["updates_per_s"] for line in lines), amount),
        ]

    head = ("validation loss", "symbols that are right", "an update, ms")
    return _training_table(root, "copy-task-short", head, cells, _seeds_text)


def fashion_table(root: Path) -> list[str]:
    """Bits per dimension of Fashion-MNIST after equal updates and after equal time, times of epochs, and how fast images are
    generated."""
    name = "fashion-short"
    if (folder := _training_folder(root, name)) is None:
        return NOTHING
    rows = _by_method(row for row in results.read_folder(folder) if row["source"] == results.TRAININGS)
    speeds = results.generations(folder) if (folder / results.GENERATIONS_FILE_NAME).exists() else []
    speeds_of = _by_method(speeds)

    def cells(method: str, lines: list[Record]) -> list[str]:
        fastest = max((row["images_per_s"] for row in speeds_of.get(method, [])), default=None)
        return [
            _quality(rows[method], "bits_per_dim", "{:.3f}".format),
            _minutes(lines),
            span((line["epoch_s"] for line in lines), amount),
            "not measured" if fastest is None else amount(fastest),
        ]

    def note(lines: list[Record]) -> str:
        said = [f"Images are generated {max(row['batch'] for row in speeds)} at a time."] if speeds else []
        return " ".join([_compared_at(lines), *said])

    head = ("bits per dimension after equal updates · after equal time", "minutes", "an epoch, s", "images/s")
    return _training_table(root, name, head, cells, note)


def _quality(rows: list[Row], quantity: str, text: Callable[[float], str]) -> str:
    """A quantity at the end of the trainings and after equal time, each from the lowest to the highest of the seeds."""
    ends = span((row[quantity] for row in rows), text)
    in_time = [row["at_equal_time"].get(quantity) for row in rows]
    known = [value for value in in_time if value is not None]
    return f"{ends} · {span(known, text) if len(known) == len(rows) else 'not reached'}"


def _minutes(lines: list[Record]) -> str:
    return span((line["training_s"] / 60 for line in lines), amount)


def _seeds_text(lines: list[Record]) -> str:
    """A sentence that says of how many seeds a table shows the range."""
    seeds = len({line["seed"] for line in lines})
    return f"Lowest to highest of {seeds} seeds." if seeds > 1 else "One seed."


def _compared_at(lines: list[Record]) -> str:
    """Sentences that say how many seeds there are and how long the equal time is."""
    spread, time = _seeds_text(lines), trainings.equal_time(lines)
    return f"{spread} Equal time is {amount(time / 60)} min, in which the fastest training ended." if time else spread


def speech_table(root: Path) -> list[str]:
    """Phone error rates of the short speech training, at its end and after equal time, and times of epochs."""
    folder = _training_folder(root, "speech-short")
    rows = results.read_folder(folder) if folder else []
    of_speech = _by_method(row for row in rows if row["source"] == results.TRAININGS and row["dataset"] == SPEECH)
    if not of_speech:  # older trainings were of made speech
        return NOTHING

    def cells(method: str, lines: list[Record]) -> list[str]:
        learning_rate = span((line["learning_rate"] for line in lines), "{:g}".format)
        epoch = span((line["epoch_s"] for line in lines), amount)
        return [_quality(of_speech[method], "phone_error_rate", share), learning_rate, _minutes(lines), epoch]

    def note(lines: list[Record]) -> str:
        chance = max(line["chance_error_rate"] for line in lines)
        return f"{_compared_at(lines)} By chance, {share(chance)} of the phones would be wrong."

    head = ("phones that are wrong at the end · after equal time", "learning rate", "minutes", "an epoch, s")
    return _training_table(root, "speech-short", head, cells, note)


def long_text_table(root: Path) -> list[str]:
    """Bits per byte of a long text after equal time."""
    return _long_table(root, "long-text", ("bits per byte", "bits_per_dim", "{:.3f}".format))


def long_copy_table(root: Path) -> list[str]:
    """Shares of correct symbols that are copied across long gaps, after equal time."""
    return _long_table(root, "long-copy", ("symbols that are right", "validation_accuracy", share))


def _long_table(root: Path, name: str, measure: tuple[str, str, Callable[[float], str]]) -> list[str]:
    title, column, text = measure

    def cells(_: str, lines: list[Record]) -> list[str]:
        return [
            span((line[column] for line in lines), text),
            span((line["update"] for line in lines), "{:,.0f}".format),
            span((line["training_s"] / line["update"] for line in lines), amount),
        ]

    return _training_table(root, name, (title, "updates", "an update, s"), cells, _seeds_text)


def epoch_table(root: Path) -> list[str]:
    """Hours that an epoch of the full size would take, extrapolated from some updates."""

    def cells(_: str, lines: list[Record]) -> list[str]:
        return [amount(min(line["epoch_s"] for line in lines) / 3600)]

    def note(lines: list[Record]) -> str:
        return f"Extrapolated from {max(line['updates'] for line in lines)} updates."

    return _training_table(root, "speech-epoch", ("an epoch, hours",), cells, note)


def image_speed_table(root: Path) -> list[str]:
    """Seconds per image with a batch of one and images per second with the best batch, for each data set."""
    folder = machine_folder(root, "image-speed", results.GENERATIONS_FILE_NAME)
    if folder is None:
        return NOTHING
    ours = [row for row in image_speed.load(folder).ours if row["device"] == "cpu"]
    by_method = _by_method(ours)
    datasets = sorted({row["dataset"] for row in ours}, reverse=True)
    rows = []
    for method, of_method in by_method.items():
        cells = [f"`{method}`"]
        for dataset in datasets:
            alone, best = _alone(of_method, dataset), _best(of_method, dataset)
            cells.append(_speed_text(alone, "s_per_image"))
            cells += [_speed_text(best, "images_per_s"), f"{best['batch']}" if best else "–"]
        rows.append(cells)
    head = ["method"]
    for name in datasets:
        head += [f"{name}, s/image", f"{name}, images/s", "at batch"]
    notes = ["~ is extrapolated.", *_compared(by_method, datasets)]
    return [*verdicts.table(head, rows), *notes, f"Measured on {provenance(folder, ours)}."]


def _alone(rows: Iterable[Row], dataset: str) -> Row | None:
    found = [row for row in rows if row["dataset"] == dataset and row["batch"] == 1]
    return min(found, key=lambda row: row["s_per_image"], default=None)


def _best(rows: Iterable[Row], dataset: str) -> Row | None:
    found = [row for row in rows if row["dataset"] == dataset]
    return max(found, key=lambda row: row["images_per_s"], default=None)


def _speed_text(row: Row | None, quantity: str) -> str:
    if row is None:
        return "not measured"
    return f"{'~' if row.get('extrapolated') else ''}{amount(row[quantity])}"


def _compared(by_method: dict[str, list[Row]], datasets: Sequence[str]) -> list[str]:
    """Sentences that say how many times as fast softmax attention is with a cache, and linear attention is in comparison with that."""
    sentences = []
    for name in datasets:
        alone = {method: _alone(rows, name) for method, rows in by_method.items()}
        best = {method: _best(rows, name) for method, rows in by_method.items()}
        needed = ("softmax", "stateful-softmax", "linear")
        if not all(alone.get(method) and best.get(method) for method in needed):
            continue
        softmax, cached, linear = (alone[method]["s_per_image"] for method in needed)
        in_batches = best["linear"]["images_per_s"] / best["stateful-softmax"]["images_per_s"]
        sentences.append(
            f"For {name}, a cache of keys and values makes softmax {amount(softmax / cached)} times as fast. Linear attention is "
            f"{amount(cached / linear)} times as fast as that for a single image, and {amount(in_batches)} times in batches."
        )
    return sentences
