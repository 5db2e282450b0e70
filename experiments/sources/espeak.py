"""Speaks a text with libespeak-ng (GPL-3), and says when each phoneme begins: `speak` for this process, and `Speaker`, which does so
in a process of its own with the libraries of a folder."""

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

# espeak-ng/speak_lib.h of version 1.51.
_SYNCHRONOUS = 2
_PHONEME_EVENTS, _DO_NOT_EXIT = 1, 0x8000
_RATE, _VOLUME, _PITCH, _RANGE = 1, 2, 3, 4
_EVENT_PHONEME = 7
_UTF8 = 1


class _Id(ctypes.Union):
    _fields_ = [("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8)]  # noqa: RUF012


class _Event(ctypes.Structure):
    _fields_ = [  # noqa: RUF012
        ("type", ctypes.c_int), ("unique_identifier", ctypes.c_uint), ("text_position", ctypes.c_int), ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int), ("sample", ctypes.c_int), ("user_data", ctypes.c_void_p), ("id", _Id),
    ]  # fmt: skip


_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))


@dataclass(frozen=True)
class Spoken:
    """A spoken text: samples of 16 bits, their number in a second, and the phonemes with the samples at which they begin, by
    espeak-ng's names, such as "oU"."""

    samples: np.ndarray
    rate: int
    phonemes: list[tuple[str, int]]


@dataclass(frozen=True)
class Voice:
    """How a text is spoken: a voice of espeak-ng, such as "en-us+f2", words in a minute, and pitch from 0 to 100."""

    name: str
    speed: int
    pitch: int


class Library:
    """libespeak-ng. `data` is the folder that holds espeak-ng-data; None for that of the system. Raises OSError if the library
    cannot be loaded, and RuntimeError if it does not speak."""

    def __init__(self, data: Path | None = None) -> None:
        self._library = ctypes.CDLL("libespeak-ng.so.1")
        path = str(data).encode() if data else None
        self._rate = self._library.espeak_Initialize(_SYNCHRONOUS, 0, path, _PHONEME_EVENTS | _DO_NOT_EXIT)
        if self._rate <= 0:
            raise RuntimeError(f"libespeak-ng could not be initialised with the data in {data or 'its usual folder'}")
        path_of_data = ctypes.c_char_p()
        self._library.espeak_Info(ctypes.byref(path_of_data))
        self._variants = Path((path_of_data.value or b"").decode()) / "voices/!v"
        self._pieces: list[bytes] = []
        self._phonemes: list[tuple[str, int]] = []
        self._callback = _Callback(self._take)  # kept here, because the library calls it later
        self._library.espeak_SetSynthCallback(self._callback)

    def _take(self, samples: "ctypes._Pointer[ctypes.c_short]", count: int, events: "ctypes._Pointer[_Event]") -> int:
        if count > 0:
            self._pieces.append(ctypes.string_at(ctypes.cast(samples, ctypes.c_void_p), 2 * count))
        number = 0
        while events[number].type != 0:
            if events[number].type == _EVENT_PHONEME:
                self._phonemes.append((events[number].id.string.decode(), events[number].sample))
            number += 1
        return 0

    def speak(self, text: str, voice: Voice) -> Spoken:
        """The text, spoken. Raises RuntimeError for a voice that espeak-ng does not have."""
        self._pieces, self._phonemes = [], []
        _, _, variant = voice.name.partition("+")
        # The library speaks with another variant if this one is missing, and says nothing.
        if variant and not (self._variants / variant).is_file():
            raise RuntimeError(f"there is no variant '{variant}' of its voices in {self._variants}")
        if self._library.espeak_SetVoiceByName(voice.name.encode()) != 0:
            raise RuntimeError(f"libespeak-ng has no voice '{voice.name}'")
        for parameter, value in ((_RATE, voice.speed), (_PITCH, voice.pitch), (_VOLUME, 100), (_RANGE, 50)):
            self._library.espeak_SetParameter(parameter, value, 0)
        said = text.encode()
        if self._library.espeak_Synth(said, len(said) + 1, 0, 1, 0, _UTF8, None, None) != 0:
            raise RuntimeError(f"libespeak-ng could not speak '{text}'")
        return Spoken(np.frombuffer(b"".join(self._pieces), np.int16), self._rate, self._phonemes)


def speak_all(tasks: list[tuple[str, Voice]], root: Path | None) -> Iterator[Spoken]:
    """Speaks texts in a process of its own, which finds the library and its data below `root`, a folder of unpacked packages, or
    those of the system without it. Raises RuntimeError with what the process said if it ends early."""
    environment, data = dict(os.environ), None
    if root:
        folder = next(iter(sorted(root.glob("usr/lib/*/libespeak-ng.so.1"))), root / "missing").parent
        earlier = environment.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = f"{folder}:{folder}/pulseaudio" + (f":{earlier}" if earlier else "")
        data = str(folder)
    request = {"data": data, "tasks": [[text, voice.name, voice.speed, voice.pitch] for text, voice in tasks]}
    command = [sys.executable, str(Path(__file__).resolve())]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(json.dumps(request).encode())
        process.stdin.close()
        for _ in tasks:
            head = process.stdout.readline()
            if not head:
                said = process.stderr.read().decode().strip().splitlines()
                raise RuntimeError(said[-1] if said else "libespeak-ng ended without a word")
            count, rate, phonemes = json.loads(head)
            samples = np.frombuffer(process.stdout.read(2 * count), np.int16)
            yield Spoken(samples, rate, [(name, sample) for name, sample in phonemes])


def _answer() -> None:
    """The process of speak_all(): reads the request, and writes for each text a line of JSON and the samples."""
    request = json.load(sys.stdin)
    library = Library(Path(request["data"]) if request["data"] else None)
    for text, name, speed, pitch in request["tasks"]:
        spoken = library.speak(text, Voice(name, speed, pitch))
        sys.stdout.buffer.write(json.dumps([len(spoken.samples), spoken.rate, spoken.phonemes]).encode() + b"\n")
        sys.stdout.buffer.write(spoken.samples.tobytes())
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    _answer()
