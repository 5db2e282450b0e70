#!/usr/bin/env python3
"""Packs what a GPU node needs to verify and measure everything into one folder.

    tools/gpu_bundle.py --build build-cuda --out build-cuda/attnbench-gpu

`make gpu-bundle` runs it. The folder holds the programs and the kernels without debug information,
the sweeps, the tests of the operators, what the module for methods in Python is compiled from, and
gpu.py with its package gpu_node, which the node runs with any Python 3. It holds no torch: the node's own is used. Nothing in
it depends on where it lies, and nothing is written to it.

The folder is checked, and not made if a check fails: its size, the versions of the symbols of glibc
that it needs, that no program names a folder of this machine, that the kernels are there as machine
code and as PTX, and that every library it needs is in it, belongs to torch, or is on every Linux.
"""

import argparse
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MAX_BYTES = 60 << 20
MAX_GLIBC = (2, 36)
# Libraries that every Linux with a C++ compiler's run time has, and those that the folder of torch has or loads.
OF_SYSTEM = re.compile(r"(lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)|ld-linux-[a-z0-9-]+)\.so\.\d+")
OF_TORCH = re.compile(r"lib(torch[a-z_]*|c10[a-z_]*|gomp[-a-z0-9]*|cudart)\.so(\.\d+)*")
# What the tests of the operators need besides torch, for a node whose Python lacks it.
TEST_PACKAGES = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")
LEXERS = ("__init__", "_mapping", "python", "diff")  # of pygments, which pytest imports
SOURCES_OF_MODULE = ("forking.cpp", "interpreter.cpp", "python_method.cpp")
LIBRARIES_OF_MODULE = ("libworker.a", "libschema.a", "libmachine.a", "libstatistics.a")


class BundleError(Exception):
    """Says what cannot be packed, with what was found and what was expected."""


def output_of(*words: Any) -> str:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BundleError(f"{' '.join(map(str, words))} ended with exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


# ---------------------------------------------------------------- what is checked


def is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def programs_in(folder: Path) -> list[Path]:
    """The programs and shared libraries in a folder."""
    return [p for p in sorted(folder.rglob("*")) if p.is_file() and not p.is_symlink() and p.suffix != ".a" and is_elf(p)]


@dataclass
class Dynamic:
    """What the loader reads of a program: the libraries that it needs, and the folders that it names."""

    needed: list[str]
    folders: list[str]


def dynamic_of(path: Path) -> Dynamic:
    text = output_of("readelf", "-d", "-W", path)
    found = re.findall(r"\((RPATH|RUNPATH)\).*\[(.*)\]", text)
    return Dynamic(re.findall(r"\(NEEDED\).*\[(.*)\]", text), [folder for _, path in found for folder in path.split(":")])


def glibc_of(path: Path) -> tuple[tuple[int, ...], str]:
    """The newest version of glibc whose symbols a program needs, and one of these symbols."""
    newest: tuple[tuple[int, ...], str] = ((0,), "")
    for line in output_of("readelf", "--dyn-syms", "-W", path).splitlines():
        if found := re.search(r" UND (\S+)@GLIBC_([0-9.]+)", line):
            newest = max(newest, (tuple(map(int, found[2].split("."))), found[1]))
    return newest


def check_programs(folder: Path) -> str:
    """Checks every program and library, and returns the newest version of glibc that one needs."""
    own = {path.name for path in programs_in(folder)}
    newest: tuple[int, ...] = (0,)
    for path in programs_in(folder):
        name = path.relative_to(folder)
        dynamic = dynamic_of(path)
        for place in dynamic.folders:
            if not place.startswith("$ORIGIN"):
                raise BundleError(f"{name} looks for libraries in '{place}'; expected folders that begin with $ORIGIN")
        for library in dynamic.needed:
            if library not in own and not OF_SYSTEM.fullmatch(library) and not OF_TORCH.fullmatch(library):
                raise BundleError(f"{name} needs {library}, which is neither in the bundle, nor torch's, nor on every Linux")
        version, symbol = glibc_of(path)
        if version > MAX_GLIBC:
            raise BundleError(
                f"{name} needs {symbol} of glibc {'.'.join(map(str, version))}; expected at most {'.'.join(map(str, MAX_GLIBC))}, "
                "so build on a system that is not newer"
            )
        newest = max(newest, version)
    return ".".join(map(str, newest))


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def check_size(folder: Path) -> int:
    size = size_of(folder)
    if size > MAX_BYTES:
        parts = sorted(((size_of(p) if p.is_dir() else p.stat().st_size, p.name) for p in folder.iterdir()), reverse=True)
        raise BundleError(
            f"the bundle has {size / 2**20:.1f} MiB, expected at most {MAX_BYTES >> 20}; the largest parts: "
            + ", ".join(f"{name} {bytes_ / 2**20:.1f} MiB" for bytes_, name in parts[:4])
        )
    return size


def gpu_code(path: Path) -> set[str]:
    """The forms in which a library has its kernels, such as "sm_90" (machine code) and "compute_90" (PTX).

    nvcc stores them as fat binaries: a header with the magic number 0xBA55ED50, its own size and that of what follows, and then
    entries with a kind (1 is PTX, 2 is machine code), the sizes of their header and of their contents, and the architecture.
    """
    data = path.read_bytes()
    found: set[str] = set()
    magic = struct.pack("<I", 0xBA55ED50)
    begin = data.find(magic)
    while begin >= 0 and begin + 16 <= len(data):
        _, _, header_bytes, content_bytes = struct.unpack_from("<IHHQ", data, begin)
        at, end = begin + header_bytes, min(len(data), begin + header_bytes + content_bytes)
        while at + 32 <= end:
            kind, _, entry_header, entry_bytes = struct.unpack_from("<HHIQ", data, at)
            (architecture,) = struct.unpack_from("<I", data, at + 28)
            if kind not in (1, 2) or entry_header == 0:
                break
            found.add(f"{'compute' if kind == 1 else 'sm'}_{architecture}")
            at += entry_header + entry_bytes
        begin = data.find(magic, begin + 4)
    return found


def check_kernels(folder: Path) -> list[str]:
    """Checks that each library with kernels has machine code and PTX, and returns what there is."""
    libraries = [folder / "attnbench/lib/libattn-cuda.so", folder / "attnbench/libexec/attnbench/libattnbench-gpu.so"]
    forms: set[str] = set()
    for library in libraries:
        if not library.exists():
            raise BundleError(f"the build has no {library.name}; `make cuda` builds it")
        code = gpu_code(library)
        for kind, what in (("sm_", "machine code"), ("compute_", "PTX")):
            if not any(form.startswith(kind) for form in code):
                raise BundleError(f"{library.name} has kernels as {sorted(code) or 'nothing'}; expected also {what}")
        forms |= code
    return sorted(forms)


# ---------------------------------------------------------------- what is packed


def cache_of(build: Path) -> dict[str, str]:
    """The variables of a configured build folder."""
    try:
        text = (build / "CMakeCache.txt").read_text("utf-8")
    except OSError as error:
        raise BundleError(f"{build} is no build folder ({error}); `make cuda` makes one") from error
    return dict(re.findall(r"^([A-Za-z][^:=\n]*):[A-Z]+=(.*)$", text, re.MULTILINE))


def install(build: Path, prefix: Path) -> None:
    """Installs the programs and the library without debug information, and without what plots and trainings need."""
    for component in ("programs", "library", "wheel"):
        output_of("cmake", "--install", build, "--strip", "--component", component, "--prefix", prefix)
    shutil.rmtree(prefix / "share/attnbench/plots", ignore_errors=True)
    shutil.rmtree(prefix / "share/attnbench/experiments", ignore_errors=True)
    # Made for the Python of this machine. On the node it is compiled again.
    for path in [*prefix.rglob("libattnbench-python.so"), *prefix.rglob("attnbench-experiments")]:
        path.unlink()
    shutil.rmtree(prefix / "libexec/attnbench/cuda-stand-ins", ignore_errors=True)
    for source in sorted((ROOT / "python/attnbench").rglob("*.py*")):
        if source.suffix in (".py", ".pyi"):
            target = prefix / source.relative_to(ROOT / "python/attnbench")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def forget_folders(prefix: Path) -> None:
    """Lets programs look for libraries beside themselves only, and no longer in the torch of this machine."""
    for path in programs_in(prefix):
        folders = dynamic_of(path).folders
        kept = [folder for folder in folders if folder.startswith("$ORIGIN") and "torch" not in folder]
        if kept == folders:
            continue
        with tempfile.NamedTemporaryFile("w", suffix=".cmake") as script:
            script.write(f'file(RPATH_SET FILE "{path}" NEW_RPATH "{":".join(kept).replace("$", chr(92) + "$")}")\n')
            script.flush()
            output_of("cmake", "-P", script.name)


def carry_system_libraries(prefix: Path) -> None:
    """Copies the libraries that programs need of this system and that another may lack, such as fmt."""
    for path in programs_in(prefix):
        for library in dynamic_of(path).needed:
            if OF_SYSTEM.fullmatch(library) or OF_TORCH.fullmatch(library) or list(prefix.rglob(library)):
                continue
            found = re.search(rf"^\s*{re.escape(library)} => (\S+)", output_of("ldd", path), re.MULTILINE)
            if not found:
                raise BundleError(f"{path.name} needs {library}, which is not on this machine")
            shutil.copyfile(found[1], prefix / "lib" / library)
            (prefix / "lib" / library).chmod(0o755)


def commands_of(build: Path) -> dict[str, list[str]]:
    """The compiler's command for each source of the module for methods in Python."""
    commands = json.loads((build / "compile_commands.json").read_text("utf-8"))
    folder = ROOT / "harness/worker/python"
    found = {Path(c["file"]).name: shlex.split(c["command"]) for c in commands if Path(c["file"]).parent == folder}
    if missing := sorted(set(SOURCES_OF_MODULE) - set(found)):
        raise BundleError(f"{build} does not compile {missing[0]} of the module for methods in Python, whose headers are packed")
    return found


def headers_of(build: Path) -> dict[str, Path]:
    """The headers that the module for methods in Python includes, other than those of torch, Python and the system, by the path
    that they are included by."""
    headers: dict[str, Path] = {}
    for source, words in commands_of(build).items():
        if source not in SOURCES_OF_MODULE:
            continue
        words = [w for w in words if w != "-c"]
        if "-o" in words:
            at = words.index("-o")
            del words[at : at + 2]
        if not Path(words[0]).name.startswith(("g++", "c++", "clang")):  # a launcher such as ccache
            words = words[next(k for k, w in enumerate(words) if Path(w).name.startswith(("g++", "c++", "clang"))) :]
        done = subprocess.run([*words, "-M"], cwd=build, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BundleError(f"the headers of {source} cannot be found: {done.stderr[-500:]}")
        for name in done.stdout.replace("\\\n", " ").split()[1:]:
            path = Path(name)
            if path.suffix == ".cpp":
                continue
            if path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / ".venv") and not path.is_relative_to(build):
                headers[path.relative_to(ROOT).as_posix()] = path
            elif path.is_relative_to(build / "generated"):
                headers[path.relative_to(build / "generated").as_posix()] = path
            elif "nlohmann" in path.parts:
                headers["/".join(path.parts[path.parts.index("nlohmann") :])] = path
    return headers


def pack_module(build: Path, folder: Path) -> None:
    """Packs what the node compiles the module for methods in Python from: its sources, the headers, and what it links."""
    (folder / "source").mkdir(parents=True)
    for name in SOURCES_OF_MODULE:
        shutil.copyfile(ROOT / "harness/worker/python" / name, folder / "source" / name)
    for name, path in headers_of(build).items():
        target = folder / "include" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    for name in LIBRARIES_OF_MODULE:
        found = sorted(build.rglob(name))
        if not found:
            raise BundleError(f"{build} has no {name}, which the module for methods in Python links; build it first")
        shutil.copyfile(found[0], folder / name)
        output_of("strip", "--strip-debug", folder / name)


def pack_tests(folder: Path) -> None:
    folder.mkdir()
    shutil.copyfile(ROOT / "tests/python/operators/test_operators_cuda.py", folder / "test_operators_cuda.py")
    for package in TEST_PACKAGES:
        try:
            files = importlib.metadata.files(package) or []
        except importlib.metadata.PackageNotFoundError as error:
            raise BundleError(f"this Python ({sys.executable}) has no {package}, which the tests of the operators need") from error
        for file in files:
            source = Path(str(file.locate()))
            left_out = file.parts[:2] == ("pygments", "lexers") and file.stem not in LEXERS
            if file.suffix == ".py" and ".." not in file.parts and source.exists() and not left_out:
                target = folder / "packages" / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)


def pack_wheels(wheels: Iterable[str], folder: Path) -> None:
    """Unpacks wheels of packages in Python, such as fla, for a node that lacks them."""
    for name in wheels:
        path = Path(name)
        if not path.name.endswith("-none-any.whl"):
            raise BundleError(f"{path.name} is not a wheel of Python code alone; expected a name that ends in -none-any.whl")
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(folder)


def describe(build: Path, staging: Path, stand_in: str, kernels: list[str]) -> dict[str, Any]:
    """What bundle.json says."""
    cache = cache_of(build)
    torch = Path(output_of(cache["ATTNBENCH_PYTHON"], "-c", "import importlib.util as u; print(u.find_spec('torch').origin)").strip())
    facts = {
        name: found[1] if (found := re.search(rf"^{name}[^=\n]*= '([^']*)'", torch.with_name("version.py").read_text(), re.MULTILINE)) else None
        for name in ("__version__", "cuda")
    }
    version = output_of(build / "attnbench", "--version").splitlines()
    return {
        "format": "attnbench-gpu-bundle",
        "version": 1,
        "program": version[0],
        "revision": version[1].removeprefix("revision ").split(" ")[0],
        "dirty": "uncommitted" in version[1],
        "build": version[2].removeprefix("build "),
        "torch": {"version": (facts["__version__"] or "").split("+")[0], "cuda": facts["cuda"], "abi": "C++11"},
        "stand_in": stand_in,
        "kernels": kernels,
        "glibc": check_programs(staging),
    }


def make(build: Path, out: Path, wheels: list[str], stand_in: str) -> dict[str, Any]:
    """Makes the bundle in a folder beside `out`, checks it, and puts it in the place of `out`."""
    cache_of(build)
    if out.exists() and not (out / "bundle.json").exists():
        raise BundleError(f"{out} exists and is no bundle, so it is not replaced; expected another folder in --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".attnbench-gpu-", dir=out.parent) as temporary:
        staging = Path(temporary) / "bundle"
        staging.mkdir()
        prefix = staging / "attnbench"
        install(build, prefix)
        kernels = [] if stand_in else check_kernels(staging)  # before what takes long
        if stand_in:
            shutil.copyfile(stand_in, prefix / "libexec/attnbench/stand-in-gpu.so")
        forget_folders(prefix)
        carry_system_libraries(prefix)
        pack_module(build, staging / "python-module")
        pack_tests(staging / "tests")
        pack_wheels(wheels, staging / "wheels")
        shutil.copyfile(ROOT / "tools/gpu.py", staging / "gpu.py")
        shutil.copytree(ROOT / "tools/gpu_node", staging / "gpu_node", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copyfile(ROOT / "attn/cuda/model/predictions.csv", staging / "predictions.csv")
        for name in ("LICENSE", "docs/gpu.md"):
            shutil.copyfile(ROOT / name, staging / Path(name).name)
        shutil.copyfile(ROOT / "tools/gpu.sbatch", staging / "gpu.sbatch")
        for name in ("gpu.py", "gpu.sbatch"):
            (staging / name).chmod(0o755)
        facts = describe(build, staging, Path(stand_in).name if stand_in else "", kernels)
        (staging / "bundle.json").write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
        size = check_size(staging)
        shutil.rmtree(out, ignore_errors=True)
        os.replace(staging, out)
    return facts | {"bytes": size}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/gpu_bundle.py", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--build", default="build-cuda", metavar="FOLDER", help="build folder (default: build-cuda)")
    parser.add_argument("--out", metavar="FOLDER", help="folder to make, whose contents are replaced (default: attnbench-gpu in the build folder)")
    parser.add_argument("--wheel", action="append", default=[], metavar="FILE",
                        help="wheel of a package in Python that the node may lack, such as fla")  # fmt: skip
    parser.add_argument("--stand-in", default="", metavar="FILE",
                        help="GPU module that stands in for a GPU, for a rehearsal of a build without CUDA")  # fmt: skip
    chosen = parser.parse_args(arguments)
    build = Path(chosen.build).resolve()
    out = Path(chosen.out).resolve() if chosen.out else build / "attnbench-gpu"
    try:
        facts = make(build, out, chosen.wheel, chosen.stand_in)
    except (BundleError, OSError) as error:
        print(f"gpu_bundle: {error}", file=sys.stderr)
        return 2
    what = f"kernels as {', '.join(facts['kernels'])}" if facts["kernels"] else f"the stand-in {facts['stand_in']} in place of kernels"
    print(f"{out}: {facts['bytes'] / 2**20:.1f} MiB, {what}, symbols up to glibc {facts['glibc']}, torch {facts['torch']['version']}")
    print(f"copy the folder to the node, and run there: python3 {out.name}/gpu.py --minutes 25")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
