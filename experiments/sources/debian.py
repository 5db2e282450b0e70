"""Gets files of Debian packages: installed ones, or downloaded with apt-get and unpacked with dpkg-deb, without root."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path


class SourceError(Exception):
    """Says in a sentence why data cannot be prepared, and what would help."""


def folder_of(package: str, path: str, scratch: Path) -> Path:
    """The folder `path`, such as "usr/share/datasets", of a package: of the system if it is installed there, else of the
    package that is unpacked into `scratch`. Raises SourceError."""
    installed = Path("/") / path
    if installed.is_dir():
        return installed
    found = unpacked([package], scratch) / path
    if not found.is_dir():
        raise SourceError(f"the package {package} has no folder /{path}, expected the version of Debian 12")
    return found


def unpacked(packages: Sequence[str], scratch: Path) -> Path:
    """The folder into which these packages, without what they depend on, are unpacked. Raises SourceError."""
    _check_programs(packages)
    archives, root = scratch / "archives", scratch / "root"
    archives.mkdir(exist_ok=True)
    for package in packages:
        print(f"prepare_data: downloads the package {package}", flush=True)
        _download(package, archives, scratch)
    for archive in sorted(archives.glob("*.deb")):
        _run(["dpkg-deb", "-x", str(archive), str(root)], f"{archive.name} could not be unpacked")
    return root


def missing_dependencies(package: str, scratch: Path) -> list[str]:
    """A package and those of its dependencies that are not installed. Raises SourceError."""
    _check_programs([package])
    command = ["install", "--no-install-recommends", "--print-uris", "-qq", package]
    done = _apt(command, scratch)
    if done.returncode != 0:
        _renew_lists(package, scratch)
        done = _apt(command, scratch)
    if done.returncode != 0:
        raise _not_downloaded(package, done.stderr)
    # Each line is 'ADDRESS' NAME_VERSION_ARCHITECTURE.deb SIZE DIGEST.
    return [line.split()[1].split("_")[0] for line in done.stdout.splitlines() if line.startswith("'")]


def check_digest(path: Path, expected: str) -> None:
    """Raises SourceError unless the file has this SHA-256 digest."""
    found = digest([path])
    if found != expected:
        raise SourceError(f"{path}: its SHA-256 digest is {found}, expected {expected}")


def digest(paths: Iterable[Path]) -> str:
    """The SHA-256 digest of the files' contents, one after another."""
    sums = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                sums.update(block)
    return sums.hexdigest()


def _check_programs(packages: Sequence[str]) -> None:
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise SourceError(f"there is no {program}, which Debian and its derivatives have, to get the package {', '.join(packages)}")


def _download(package: str, archives: Path, scratch: Path) -> None:
    done = _apt(["download", package], scratch, archives)
    if done.returncode != 0:
        # The system's lists of packages may be missing or old.
        _renew_lists(package, scratch)
        done = _apt(["download", package], scratch, archives)
    if done.returncode != 0:
        raise _not_downloaded(package, done.stderr)


def _lists(scratch: Path) -> Path:
    return scratch / "lists"


def _renew_lists(package: str, scratch: Path) -> None:
    """Gets lists of packages of this script's own, for which no root is needed."""
    (_lists(scratch) / "partial").mkdir(parents=True, exist_ok=True)
    done = _apt(["update", "-qq", "-o", "APT::Update::Error-Mode=any"], scratch)
    if done.returncode != 0:
        shutil.rmtree(_lists(scratch))
        raise _not_downloaded(package, done.stderr)


def _not_downloaded(package: str, said: str) -> SourceError:
    reasons = [line.strip() for line in said.splitlines() if line.startswith(("E:", "W:"))] or said.splitlines()[-1:]
    return SourceError(
        f"apt-get could not download the package {package}; is there a network? It said: {' '.join(reasons[:1]) or 'nothing'}"
    )


def _apt(words: Sequence[str], scratch: Path, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    options = ["-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=2"]
    if _lists(scratch).exists():
        options += ["-o", f"Dir::State::lists={_lists(scratch)}", "-o", f"Dir::Cache={scratch}"]
    environment = os.environ | {"LC_ALL": "C.UTF-8"}
    return subprocess.run(
        ["apt-get", *options, *words], cwd=folder or scratch, env=environment, capture_output=True, text=True, check=False
    )


def _run(command: Sequence[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SourceError(f"{what}: {done.stderr.strip()}")
