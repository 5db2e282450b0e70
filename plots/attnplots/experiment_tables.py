"""The tables that docs/experiments.md shows of the trainings and of the speed of generating images."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from attnplots import image_speed, results, trainings, verdicts
from attnplots.methods import method_name
from attnplots.quoted import machine_folder, provenance
from attnplots.records import Record
from attnplots.results import Row
from attnplots.words import amount, share

NOTHING = ["Nothing is measured yet."]


def _by_method(lines: Iterable[Record]) -> dict[str, list[Record]]:
    """The lines of each method, in the order of the figures; other methods are last."""
    found: dict[str, list[Record]] = {}
    for line in lines:
        found.setdefault(method_name(line["method"]), []).append(line)
    order = (*image_speed.ORDER, *found)
    return dict(sorted(found.items(), key=lambda pair: order.index(pair[0])))


def _range(values: Sequence[float], text: Callable[[float], str]) -> str:
    return " to ".join(dict.fromkeys((text(min(values)), text(max(values)))))


def _trained(root: Path, name: str) -> tuple[Path, dict[str, list[Record]]] | None:
    """The folder of a training and the ends of its trainings, by method."""
    folder = machine_folder(root, name, trainings.ENDED_FILE_NAME)
    if folder is None:
        return None
    ended = [line for line in trainings.load_ended(folder)[0] if line.get("outcome") == "measured"]
    return (folder, _by_method(ended)) if ended else None


def _measured(folder: Path, by_method: dict[str, list[Record]]) -> str:
    """How long all trainings took, and where they ran."""
    lines = [line for of_method in by_method.values() for line in of_method]
    minutes = sum(line["training_s"] for line in lines) / 60
    count = "The training" if len(lines) == 1 else f"The {len(lines)} trainings"
    return f"{count} took {amount(minutes)} minutes on {provenance(folder, lines)}."


def copy_table(root: Path) -> list[str]:
    """Losses and correct symbols of the copy task in short, over the seeds."""
    if (found := _trained(root, "copy-task-short")) is None:
        return NOTHING
    folder, by_method = found
    rows = [
        [
            f"`{method}`",
            _range([line["validation_loss"] for line in lines], lambda x: f"{x:.2g}"),
            _range([line["validation_accuracy"] for line in lines], share),
            _range([1e3 / line["updates_per_s"] for line in lines], amount),
        ]
        for method, lines in by_method.items()
    ]
    head = ["method", "validation loss", "symbols that are right", "an update, ms"]
    seeds = {len(lines) for lines in by_method.values()}
    notes = [f"Lowest to highest of {max(seeds)} seeds."] if max(seeds) > 1 else []
    return [*verdicts.table(head, rows), *notes, _measured(folder, by_method)]


def digits_table(root: Path) -> list[str]:
    """Bits per dimension of the digits, times of epochs, and how fast images are generated."""
    if (found := _trained(root, "digits")) is None:
        return NOTHING
    folder, by_method = found
    points = _by_method(trainings.load_points(folder)[0])
    is_generated = (folder / results.GENERATIONS_FILE_NAME).exists()
    speeds = _by_method(results.generations(folder)) if is_generated else {}
    rows = []
    for method, lines in by_method.items():
        best = min(points[method], key=lambda point: point["bits_per_dim"])
        fastest = max((row["images_per_s"] for row in speeds.get(method, [])), default=None)
        rows.append(
            [
                f"`{method}`",
                f"{best['bits_per_dim']:.3f}",
                f"{best['update']:,} of {lines[0]['updates']:,}",
                amount(min(line["epoch_s"] for line in lines)),
                "not measured" if fastest is None else amount(fastest),
            ]
        )
    head = ["method", "bits per dimension", "after updates", "an epoch, s", "images/s"]
    batches = {row["batch"] for of_method in speeds.values() for row in of_method}
    notes = [f"Images are generated {max(batches)} at a time."] if batches else []
    return [*verdicts.table(head, rows), *notes, _measured(folder, by_method)]


def speech_table(root: Path) -> list[str]:
    """Phone error rates of the short speech training, and times of epochs."""
    if (found := _trained(root, "speech-short")) is None:
        return NOTHING
    folder, by_method = found
    rows = [
        [
            f"`{method}`",
            _range([line["phone_error_rate"] for line in lines], share),
            _range([line["epoch_s"] for line in lines], amount),
        ]
        for method, lines in by_method.items()
    ]
    chance = max(line["chance_error_rate"] for lines in by_method.values() for line in lines)
    notes = [f"By chance, {share(chance)} of the phones would be wrong."]
    head = ["method", "phones that are wrong", "an epoch, s"]
    return [*verdicts.table(head, rows), *notes, _measured(folder, by_method)]


def epoch_table(root: Path) -> list[str]:
    """How long an epoch of the full size would take."""
    if (found := _trained(root, "speech-epoch")) is None:
        return NOTHING
    folder, by_method = found
    rows = [
        [f"`{method}`", amount(min(line["epoch_s"] for line in lines) / 3600)]
        for method, lines in by_method.items()
    ]
    updates = max(line["updates"] for lines in by_method.values() for line in lines)
    notes = [f"Extrapolated from {updates} updates."]
    return [*verdicts.table(["method", "an epoch, hours"], rows), *notes, _measured(folder, by_method)]


def image_speed_table(root: Path) -> list[str]:
    """Seconds of an image alone and images a second at the best batch, for each data set."""
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
    """How much faster the cache makes softmax, and how much faster linear attention is than that."""
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
            f"For {name}, the cache of keys and values alone makes softmax {amount(softmax / cached)} times as "
            f"fast, and linear attention is another {amount(cached / linear)} times as fast alone and "
            f"{amount(in_batches)} times in batches."
        )
    return sentences
