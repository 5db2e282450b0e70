"""Synthesised speech: sentences of sentences.txt, spoken by espeak-ng with several voices, speeds and pitches, as mel filterbanks.

It is speech with the structure of a vocal tract, whose phonemes and their times are known, and no recording. Validation shares neither a
sentence nor a voice with training.
"""

import ctypes.util
import hashlib
import importlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sources import debian

PACKAGE, LIBRARY = "libespeak-ng1", "espeak-ng"
# The filterbanks are computed by this package.
FILTERBANKS = "kaldi-native-fbank==1.23.0"
BANDS, SHIFT_MS, LENGTH_MS = 40, 10.0, 25.0

SENTENCES = Path(__file__).with_name("sentences.txt")
# Variants of espeak-ng's voice of American English, with a pitch that suits each.
VOICES = {
    "training": {
        "m1": 45, "m2": 35, "m3": 40, "m4": 50, "m7": 42, "f1": 60, "f2": 65, "f3": 55, "klatt2": 45, "Alicia": 50, "Andy": 48, "Gene": 40,
    },
    "validation": {"m5": 44, "f4": 60, "klatt3": 42, "Michael": 46, "belinda": 55},
}  # fmt: skip
SPEEDS = (150, 165, 180, 195, 210)
# How many voices speak each sentence.
VOICES_OF_A_SENTENCE = {"training": 10, "validation": 5}
# A mark of palatalisation, which stands for no phoneme.
PALATALISED = ";"


@dataclass(frozen=True)
class Task:
    """A sentence and how it is spoken."""

    identifier: str
    sentence: str
    voice: str
    speed: int
    pitch: int


def sentences_of(text: str) -> dict[str, list[str]]:
    """The sentences of each part."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("["):
            found[line.strip("[]")] = own = []
        elif line and not line.startswith("#"):
            own.append(line)
    return found


def tasks_of(part: str, sentences: list[str]) -> list[Task]:
    """Every sentence with some of the part's voices. Speeds and pitches follow from the place, so that all data sets are equal."""
    voices = VOICES[part]
    tasks = []
    for number, sentence in enumerate(sentences):
        for turn in range(VOICES_OF_A_SENTENCE[part]):
            place = number * VOICES_OF_A_SENTENCE[part] + turn
            voice = list(voices)[place % len(voices)]
            # A digest stirs the places, so that a voice does not always have the same speed.
            stirred = hashlib.sha256(f"{part} {place}".encode()).digest()
            speed, pitch = SPEEDS[stirred[0] % len(SPEEDS)], voices[voice] + stirred[1] % 17 - 8
            tasks.append(Task(f"{part}-{number + 1}-{voice}", sentence, voice, speed, pitch))
    return tasks


def phone_of(name: str) -> str | None:
    """The phone that counts for a phoneme of espeak-ng, whose variants have the signs 2, # and - at their ends; None for marks and for
    pauses, which begin with _."""
    return None if not name or name.startswith("_") or name == PALATALISED else name.rstrip("2#-") or name


def source_text() -> str:
    """What source.txt says about the data: it names all that they follow from."""
    made_from = hashlib.sha256(SENTENCES.read_bytes() + repr((VOICES, SPEEDS, VOICES_OF_A_SENTENCE)).encode()).hexdigest()
    return (
        f"Sentences of experiments/sources/sentences.txt, spoken by the package {PACKAGE} of Debian; {BANDS} mel filterbanks of "
        f"{FILTERBANKS}; digest of the sentences and voices: {made_from}\n"
    )


def is_complete(folder: Path) -> bool:
    """Whether the folder holds the data of these sentences and voices. Their last file is source.txt."""
    note = folder / "source.txt"
    return note.is_file() and note.read_text("utf-8") == source_text()


def write(folder: Path, scratch: Path) -> None:
    """Writes the files that `task = "speech"` reads, and the times of the phones. Raises SourceError."""
    parts = sentences_of(SENTENCES.read_text("utf-8"))
    write_parts(folder, scratch, {part: tasks_of(part, sentences) for part, sentences in parts.items()})
    (folder / "source.txt").write_text(source_text(), "utf-8")


def write_parts(folder: Path, scratch: Path, parts: dict[str, list[Task]]) -> None:
    """Writes phones.txt, the lists of utterances, their features, and for each list a file PART-times.tsv with the frame at which each
    phone begins. Features have mean 0 and variance 1 in each band of the training data. Raises SourceError."""
    np = _imported("numpy", "numpy", scratch)
    banks = _imported("kaldi_native_fbank", FILTERBANKS, scratch)
    root = _root_of_library(scratch)
    utterances: dict[str, list[tuple[str, Any, list[tuple[str, int]]]]] = {}
    for part, tasks in parts.items():
        utterances[part] = []
        for number, (task, spoken) in enumerate(zip(tasks, _spoken(tasks, root), strict=True), start=1):
            features = _filterbanks(np, banks, spoken)
            per_frame = spoken.rate * SHIFT_MS / 1000
            phones = [(phone_of(name), min(int(sample / per_frame), len(features) - 1)) for name, sample in spoken.phonemes]
            utterances[part].append((task.identifier, features, [(phone, frame) for phone, frame in phones if phone]))
            if number % 100 == 0 or number == len(tasks):
                print(f"prepare_data: {number} of {len(tasks)} utterances of {part} are spoken", flush=True)
    known = sorted({phone for _, _, phones in utterances["training"] for phone, _ in phones})
    frames = np.concatenate([features for _, features, _ in utterances["training"]])
    mean, deviation = frames.mean(0), frames.std(0)
    (folder / "phones.txt").write_text("".join(f"{phone}\n" for phone in known), "utf-8")
    for part, of_part in utterances.items():
        (folder / part).mkdir()
        lines, times = [], []
        for identifier, features, phones in of_part:
            if unknown := [phone for phone, _ in phones if phone not in known]:
                raise debian.SourceError(f"the utterance {identifier} has the phone {unknown[0]}, which no training sentence has")
            np.save(folder / part / f"{identifier}.npy", ((features - mean) / deviation).astype(np.float32))
            lines.append(f"{identifier}\t{part}/{identifier}.npy\t{' '.join(phone for phone, _ in phones)}\n")
            times.append(f"{identifier}\t{' '.join(str(frame) for _, frame in phones)}\n")
        (folder / f"{part}.tsv").write_text("".join(lines), "utf-8")
        (folder / f"{part}-times.tsv").write_text("".join(times), "utf-8")


def _spoken(tasks: list[Task], root: Path | None) -> Iterator[Any]:
    from sources import espeak  # needs NumPy

    voices = [(task.sentence, espeak.Voice(f"en-us+{task.voice}", task.speed, task.pitch)) for task in tasks]
    try:
        yield from espeak.speak_all(voices, root)
    except RuntimeError as error:
        raise debian.SourceError(f"espeak-ng could not speak: {error}")


def _filterbanks(np: Any, banks: Any, spoken: Any) -> Any:
    """Logarithms of mel filterbank energies, float32 [frames, 40], without added noise, so that they are the same each time."""
    options = banks.FbankOptions()
    options.frame_opts.samp_freq = spoken.rate
    options.frame_opts.frame_length_ms, options.frame_opts.frame_shift_ms = LENGTH_MS, SHIFT_MS
    options.frame_opts.dither = 0
    options.mel_opts.num_bins = BANDS
    computed = banks.OnlineFbank(options)
    computed.accept_waveform(spoken.rate, (spoken.samples / 32768).astype(np.float32).tolist())
    computed.input_finished()
    return np.stack([computed.get_frame(i) for i in range(computed.num_frames_ready)])


def _root_of_library(scratch: Path) -> Path | None:
    """Where the packages of espeak-ng are unpacked; None if they are installed."""
    if ctypes.util.find_library(LIBRARY):
        return None
    return debian.unpacked(debian.missing_dependencies(PACKAGE, scratch), scratch)


def _imported(module: str, requirement: str, scratch: Path) -> Any:
    """A module of Python, for which its package is downloaded if it is not installed. Raises SourceError."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        pass
    target = scratch / "python"
    print(f"prepare_data: downloads the Python package {requirement}", flush=True)
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--disable-pip-version-check", "--target", str(target), requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise debian.SourceError(f"pip could not download {requirement}; is there a network? It said: {said}")
    sys.path.insert(0, str(target))
    importlib.invalidate_caches()
    return importlib.import_module(module)
