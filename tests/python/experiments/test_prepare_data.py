"""Tests of experiments/prepare_data.py, which writes data from packages of Debian, with stand-ins for apt-get and dpkg-deb and the real
espeak-ng; and of the trainings that ship with such data, on data of a few items."""

import gzip
import json
import os
import struct
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT
from test_cli_train import lines_of

sys.path.insert(0, str(ROOT / "experiments"))
import prepare_data  # noqa: E402
from sources import debian, espeak, fashion_mnist, handbook, synthesised_speech  # noqa: E402

SCRIPT = ROOT / "experiments/prepare_data.py"
# `apt-get download NAME` packs the folder packages/NAME. Without lists of packages of its own it fails if the file `old-lists` is
# there, and all fails without a network if `no-network` is.
APT_GET = """#!/bin/sh
here={here}
echo "$*" >> $here/log
[ -e $here/no-network ] && case "$*" in *update*|*download*) echo "E: Failed to fetch x  Temporary failure" >&2; exit 100;; esac
case "$*" in
  *update*) exit 0 ;;
  *lists=*) ;;
  *) if [ -e $here/old-lists ]; then echo "E: Unable to locate package" >&2; exit 100; fi ;;
esac
for name; do :; done
case "$*" in *download*) tar -C $here/packages/$name -cf ${{name}}_1_all.deb . ;; esac
"""
DPKG_DEB = '#!/bin/sh\nmkdir -p "$3" && tar -C "$3" -xf "$2"\n'


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A folder with the stand-ins, which come first in PATH; returns it."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"apt-get": APT_GET.format(here=tmp_path), "dpkg-deb": DPKG_DEB}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    (tmp_path / "packages").mkdir()
    return tmp_path


def idx(array):
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return gzip.compress(header + array.tobytes(), mtime=0)


def write_images(folder, count=20, size=10):
    """Files with the names of Fashion-MNIST's, but few and small images, which are bright below and dark above."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    for part in ("train", "t10k"):
        images = np.clip(np.arange(size)[None, :, None] * 20 + random.integers(0, 30, (count, size, size)), 0, 255).astype(np.uint8)
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(idx(images))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(idx(np.zeros(count, np.uint8)))
    return folder


@pytest.fixture
def clothes(system, monkeypatch):
    """The stand-in's package of Fashion-MNIST, whose digests are expected."""
    folder = write_images(system / "packages" / fashion_mnist.PACKAGE / "usr/share/not-installed/fashion")
    monkeypatch.setattr(fashion_mnist, "FOLDER", "usr/share/not-installed/fashion")
    monkeypatch.setattr(fashion_mnist, "DIGESTS", {name: debian.digest([folder / name]) for name in fashion_mnist.DIGESTS})
    return folder


def test_a_package_is_downloaded_unpacked_and_checked(system, clothes, tmp_path, capsys):
    prepare_data.prepare("fashion-mnist", tmp_path / "data")
    written = tmp_path / "data/fashion-mnist"
    assert {p.name: p.read_bytes() for p in written.iterdir()} == {p.name: p.read_bytes() for p in clothes.iterdir()}
    assert [p.name for p in (tmp_path / "data").iterdir()] == ["fashion-mnist"], "nothing else is left"
    assert "install" not in (system / "log").read_text()
    # What is complete is left as it is.
    (system / "log").unlink()
    prepare_data.prepare("fashion-mnist", tmp_path / "data")
    assert "complete already" in capsys.readouterr().out and not (system / "log").exists()


def test_lists_of_packages_that_are_old_are_renewed_without_root(system, clothes, tmp_path):
    (system / "old-lists").touch()
    prepare_data.prepare("fashion-mnist", tmp_path / "data")
    log = (system / "log").read_text()
    assert "update" in log and f"Dir::State::lists={tmp_path / 'data'}/" in log
    assert fashion_mnist.is_complete(tmp_path / "data/fashion-mnist")


def test_files_of_an_installed_package_are_used(system, clothes, tmp_path, monkeypatch):
    monkeypatch.setattr(fashion_mnist, "FOLDER", str(clothes).removeprefix("/"))
    prepare_data.prepare("fashion-mnist", tmp_path / "data")
    assert fashion_mnist.is_complete(tmp_path / "data/fashion-mnist") and not (system / "log").exists()


def test_a_file_with_another_digest_is_refused_and_nothing_is_left(system, clothes, tmp_path):
    (clothes / "t10k-labels-idx1-ubyte.gz").write_bytes(b"other")
    with pytest.raises(debian.SourceError, match=r"t10k-labels-idx1-ubyte.gz: its SHA-256 digest is \w{64}, expected \w{64}"):
        prepare_data.prepare("fashion-mnist", tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_other_data_are_never_replaced(system, clothes, tmp_path):
    (tmp_path / "data/fashion-mnist").mkdir(parents=True)
    (tmp_path / "data/fashion-mnist/mine").write_text("mine")
    with pytest.raises(debian.SourceError, match="it holds other or incomplete data; move it away"):
        prepare_data.prepare("fashion-mnist", tmp_path / "data")
    assert (tmp_path / "data/fashion-mnist/mine").read_text() == "mine"


def run(*arguments):
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.skipif(os.path.isdir(f"/{fashion_mnist.FOLDER}"), reason="the package is installed, so that nothing is downloaded")
def test_without_a_network_the_package_and_what_apt_said_are_named(system, tmp_path):
    (system / "no-network").touch()
    done = run("fashion-mnist", "--out", tmp_path / "data")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    expected = "could not download the package dataset-fashion-mnist; is there a network? It said: E: Failed to fetch x"
    assert expected in done.stderr
    assert list((tmp_path / "data").iterdir()) == []


def test_unknown_data_are_refused_with_the_known_ones():
    done = run("fashion")
    assert done.returncode == 2 and "unknown data 'fashion', expected fashion-mnist" in done.stderr


# ---------------------------------------------------------------- the handbook

INDEX = """<dl class="toc"><dt><span class="preface"><a href="preface.html">P</a></span></dt>
<dt><span class="chapter"><a href="first.html">1.</a></span></dt><dd><a href="section.html">1.1</a><a href="first.html#x">x</a></dd>
<dt><span class="chapter"><a href="network-services.html">2.</a></span></dt>
<dt><span class="chapter"><a href="debian-packaging.html">3.</a></span></dt></dl>"""
PAGE = """<html><head><title>head</title></head><body><p id="title"><a>site</a></p><ul class="docnav"><li>Next</li></ul>
<div class="section"><h2>1. <em>{name}</em></h2><p>One
   paragraph<br/>of  words &amp; signs</p><div class="toc"><dl>contents</dl></div><pre>$ ls
  a   b</pre></div><ul class="docnav"><li>Next</li></ul></body></html>"""


def test_the_text_of_a_page_is_what_one_reads():
    text = handbook.text_of(PAGE.format(name="Title"))
    assert text == "1. Title\nOne paragraph\nof words & signs\n$ ls\n  a   b\n"


def test_the_handbook_is_split_by_chapter(system, tmp_path, monkeypatch):
    folder = system / "packages" / handbook.PACKAGE / "usr/share/not-installed/handbook"
    folder.mkdir(parents=True)
    names = ("preface", "first", "section", "network-services", "debian-packaging")
    for name in names:
        (folder / f"{name}.html").write_text(PAGE.format(name=name))
    (folder / "index.html").write_text(INDEX)
    monkeypatch.setattr(handbook, "FOLDER", "usr/share/not-installed/handbook")
    with pytest.raises(debian.SourceError, match=r"the SHA-256 digest of its pages is \w{64}, expected \w{64}"):
        prepare_data.prepare("debian-handbook", tmp_path / "data")
    monkeypatch.setattr(handbook, "DIGEST", debian.digest(folder / f"{name}.html" for name in names))
    prepare_data.prepare("debian-handbook", tmp_path / "data")
    parts = [(tmp_path / f"data/debian-handbook/{part}.txt").read_text() for part in ("training", "validation")]
    titles = [[line.removeprefix("1. ") for line in part.splitlines() if line.startswith("1. ")] for part in parts]
    assert titles == [["preface", "first", "section"], ["network-services", "debian-packaging"]]
    assert handbook.is_complete(tmp_path / "data/debian-handbook")


# ---------------------------------------------------------------- synthesised speech


def parts_of(*sentences):
    """The tasks of few sentences: the first ones are for training, in three voices, the last one for validation, in two."""
    training, validation = (synthesised_speech.tasks_of(part, some) for part, some in
                            (("training", sentences[:-1]), ("validation", sentences[-1:])))  # fmt: skip
    return {"training": [t for t in training if t.voice in ("m1", "f2", "Gene")], "validation": validation[:2]}


@pytest.fixture(scope="module")
def speech(tmp_path_factory):
    """A folder of synthesised speech, and what it was made of."""
    folder, scratch = tmp_path_factory.mktemp("speech"), tmp_path_factory.mktemp("scratch")
    parts = parts_of("A grey cat sat on the mat.", "She sells eggs at the gate.", "A cat sells the mat.")
    synthesised_speech.write_parts(folder, scratch, parts)
    return folder, parts


def rows_of(path):
    return [line.split("\t") for line in path.read_text().splitlines()]


def test_utterances_have_filterbanks_and_phones_with_their_times(speech):
    folder, parts = speech
    phones = (folder / "phones.txt").read_text().splitlines()
    assert len(phones) == len(set(phones)) and {"k", "s", "t", "eI"} <= set(phones)
    assert not any(name.startswith("_") for name in phones), "pauses are no phones"
    frames = []
    for part, tasks in parts.items():
        rows, times = rows_of(folder / f"{part}.tsv"), rows_of(folder / f"{part}-times.tsv")
        assert [row[0] for row in rows] == [row[0] for row in times] == [task.identifier for task in tasks]
        for (_, path, transcript), (_, begins) in zip(rows, times, strict=True):
            features = np.load(folder / path)
            assert features.dtype == np.float32 and features.shape[1] == 40
            begins = [int(frame) for frame in begins.split()]
            assert len(begins) == len(transcript.split()) and begins == sorted(begins)
            assert 0 <= begins[0] and begins[-1] < len(features) < 400
            assert set(transcript.split()) <= set(phones)
            if part == "training":
                frames.append(features)
    of_training = np.concatenate(frames)
    assert np.allclose(of_training.mean(0), 0, atol=1e-3) and np.allclose(of_training.std(0), 1, atol=1e-3)


def test_vowels_and_hisses_are_where_the_phonemes_say(speech):
    """An s is stronger in the highest bands than in the lowest, and a vowel is not: sound and times belong together."""
    folder, _ = speech
    tilts = {"s": [], "I": [], "a": [], "E": []}
    for (_, path, transcript), (_, begins) in zip(rows_of(folder / "training.tsv"), rows_of(folder / "training-times.tsv"), strict=True):
        features, frames = np.load(folder / path), [int(frame) for frame in begins.split()]
        for phone, begin, end in zip(transcript.split(), frames, [*frames[1:], len(features)]):
            if phone in tilts and end - begin >= 4:
                middle = features[begin + 2 : end - 1]
                tilts[phone].append(middle[:, 32:].mean() - middle[:, :8].mean())
    vowels = [tilt for phone in ("I", "a", "E") for tilt in tilts[phone]]
    assert len(tilts["s"]) >= 4 and len(vowels) >= 10
    assert np.mean(tilts["s"]) > np.mean(vowels) + 1


def test_the_same_sentences_give_the_same_features(speech, tmp_path):
    folder, parts = speech
    (tmp_path / "again").mkdir()
    synthesised_speech.write_parts(tmp_path / "again", tmp_path, parts)
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    assert len(files) == 5 + sum(map(len, parts.values()))
    assert [str(name) for name in files if (tmp_path / "again" / name).read_bytes() != (folder / name).read_bytes()] == []


def test_validation_shares_no_sentence_and_no_voice_with_training():
    sentences = synthesised_speech.sentences_of(synthesised_speech.SENTENCES.read_text())
    assert {part: len(own) for part, own in sentences.items()} == {"training": 201, "validation": 40}
    spoken = {part: synthesised_speech.tasks_of(part, own) for part, own in sentences.items()}
    for column in ("sentence", "voice"):
        training, validation = ({getattr(task, column) for task in spoken[part]} for part in ("training", "validation"))
        assert training and validation and not training & validation, column
    for tasks in spoken.values():
        assert len({task.identifier for task in tasks}) == len(tasks)
        assert {task.speed for task in tasks} == set(synthesised_speech.SPEEDS)
        assert len({task.pitch for task in tasks if task.voice == tasks[0].voice}) > 5


def test_every_phone_of_the_held_out_sentences_is_one_of_training():
    sentences = synthesised_speech.sentences_of(synthesised_speech.SENTENCES.read_text())
    usual = espeak.Voice("en-us+m1", 200, 50)
    spoken = espeak.speak_all([(text, usual) for own in sentences.values() for text in own], None)
    phones = [{synthesised_speech.phone_of(name) for name, _ in one.phonemes} for one in spoken]
    assert set.union(*phones[201:]) <= set.union(*phones[:201])


def test_a_voice_that_espeak_lacks_is_refused(tmp_path):
    wrong = [synthesised_speech.Task("training-1-x", "One.", voice, 180, 50) for voice in ("m1", "nobody")]
    with pytest.raises(debian.SourceError, match="espeak-ng could not speak: RuntimeError: there is no variant 'nobody' of its voices in /"):
        synthesised_speech.write_parts(tmp_path, tmp_path, {"training": wrong, "validation": wrong})


def test_without_a_network_the_python_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(debian.SourceError, match="pip could not download no-such-module==1.0; is there a network"):
        synthesised_speech._imported("no_such_module", "no-such-module==1.0", tmp_path)


def test_every_method_of_speech_short_trains(attnbench, speech, tmp_path):
    folder, _ = speech
    small = settings(data=folder, updates=32, validate_every=16, batch=2, layers=1, threads=1)
    lines = attnbench.json("train", "speech-short", "--out", "out", *small)
    assert [line["method"].split(":")[0] for line in lines] == ["bi-lstm", "softmax", "lsh-4", "linear", "gated-delta"]
    for line in lines:
        assert line["outcome"] == "measured" and line["phone_error_rate"] > 0 and line["chance_error_rate"] == 1
        points = [p["training_loss"] for p in lines_of(tmp_path / "out", "curves.jsonl") if p["method"] == line["method"]]
        assert len(points) == 2 and points[1] < points[0]


def test_learning_rates_are_searched_alike_for_each_method(build, speech, tmp_path):
    folder, _ = speech
    small = settings(data=folder, method='["linear","bi-lstm"]', validate_every=2, batch=2, layers=1, hidden=8, threads=1)
    command = [ROOT / "experiments/search_learning_rates", "speech-short", "--rates", "1e-9", "0.005", "--updates", "4"]
    done = subprocess.run([*command, "--out", tmp_path / "rates", "--program", build / "attnbench", *small],
                          capture_output=True, text=True, check=True)  # fmt: skip
    head, _, *rows = done.stdout.splitlines()
    assert head == "| method | 1e-09 | 0.005 | best |"
    assert [(row.split("`")[1], row.split("| ")[-1]) for row in rows] == [("linear", "0.005 |"), ("bi-lstm", "0.005 |")]
    ended = [line for rate in ("1e-09", "0.005") for line in lines_of(tmp_path / "rates" / rate, "trainings.jsonl")]
    assert [line["update"] for line in ended] == [4] * 4 and {line["seed"] for line in ended} == {0}


# ---------------------------------------------------------------- trainings


@pytest.mark.parametrize("name", ["long-text", "long-copy"])
def test_every_method_of_the_long_trainings_trains(attnbench, tmp_path, name):
    (tmp_path / "book").mkdir()
    for part in ("training", "validation"):
        (tmp_path / f"book/{part}.txt").write_text("A book says the same words again. " * 20)
    small = settings(length=160, seed=0, seconds=0, updates=4, validate_every=2, validation_batches=1, threads=1, layers=1)
    small += settings(data="book") if name == "long-text" else settings(min_copied=4, max_copied=8, gap=100)
    lines = attnbench.json("train", name, "--out", "out", *small)
    assert [line["method"] for line in lines] == ["sdpa", "sparse-sdpa", "linear", "gated-delta", "kda"]
    for line in lines:
        assert line["outcome"] == "measured" and line["pattern"] == ("window:512" if line["method"] == "sparse-sdpa" else "all")
        points = [p["validation_loss"] for p in lines_of(tmp_path / "out", "curves.jsonl") if p["method"] == line["method"]]
        assert points[1] < points[0] and ("bits_per_dim" in line) == (name == "long-text")


def test_a_training_without_its_data_says_what_writes_them(attnbench, tmp_path):
    done = attnbench("train", "fashion-short", "--out", "out", "--set", "data=nowhere", code=2)
    assert "nowhere: there is no such folder, where fashion-short expects its data" in done.stderr
    assert "`python experiments/prepare_data.py --help` says which data it writes" in done.stderr
    assert (tmp_path / "out/trainings.jsonl").read_text() == "", "nothing is recorded as failed"


def settings(**values):
    return [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


def test_every_method_of_fashion_short_trains_and_generates(attnbench, tmp_path):
    write_images(tmp_path / "fashion-mnist")
    small = settings(data="fashion-mnist", updates=4, validate_every=2, batch=2, validation_items=4, layers=1, seed=0, threads=1)
    lines = attnbench.json("train", "fashion-short", "--out", "out", *small)
    names = [line["method"].split(":")[0] for line in lines]
    assert names == ["softmax", "linear", "lsh-1", "lsh-4", "gated-delta", "kda"]
    for line in lines:
        assert line["outcome"] == "measured" and line["update"] == 4
    for line in lines:
        points = [p["bits_per_dim"] for p in lines_of(tmp_path / "out", "curves.jsonl") if p["method"] == line["method"]]
        assert points[1] < points[0], line["method"]
    linear = [line for line in lines if line["method"] in ("linear", "gated-delta", "kda")]
    assert len({line["parameters"] for line in linear}) == 3, "gates have parameters"
    attnbench("generate", "out", "--samples", "2", "--completions", "2")
    for name in names:
        assert np.load(tmp_path / f"out/samples-{name}.npy").shape == (2, 10, 10)
        completions = np.load(tmp_path / f"out/completions-{name}.npy")
        assert completions.shape == (2, 3, 10, 10) and (completions[:, 1, :5] == completions[:, 2, :5]).all()


def test_a_training_whose_time_is_over_has_ended(attnbench, tmp_path):
    write_images(tmp_path / "fashion-mnist")
    small = settings(data="fashion-mnist", method="linear", updates=10**6, seconds=0.2, batch=2, validation_items=2, seed=0, layers=1)
    (line,) = attnbench.json("train", "fashion-short", "--out", "out", *small)
    assert line["outcome"] == "measured" and 0.2 <= line["training_s"] and line["update"] < 10**6
    before = (tmp_path / "out/trainings.jsonl").read_bytes()
    again = attnbench("train", "fashion-short", "--out", "out", *small)
    assert "all trainings have ended" in again.stderr and (tmp_path / "out/trainings.jsonl").read_bytes() == before
    # More time is another setting, as is everything but the number of updates.
    assert "seconds: 0.2 in" in attnbench("train", "fashion-short", "--out", "out", *small, "--set", "seconds=1", code=5).stderr
    assert json.loads(before)["seconds"] == 0.2
