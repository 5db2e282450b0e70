"""Makes small shared libraries that stand in for the CUDA libraries that `import torch` loads.

torch of PyPI loads libraries such as cuBLAS and cuDNN even where there is no GPU, and never calls them
there. They are 1.7 GB to download. A stand-in has the names that torch looks for, and nothing else: a
function of it that is called after all ends the process with a message. The worker loads a stand-in
only where the real library is missing (harness/worker/methods/methods.cpp).

    cuda_stand_ins.py FOLDER_OF_TORCH COMPILER OUTPUT
"""

import re
import subprocess
import sys
from pathlib import Path

# What torch needs of these is installed with it: requirements-build.txt names the packages.
INSTALLED = ("libcudart.so.", "libcupti.so.")
# The libraries of torch that `import torch` loads and that call CUDA libraries.
LOADED = ("libtorch_cuda.so", "libtorch_nvshmem.so", "libtorch_python.so", "libc10_cuda.so")
# The library of a version of symbols that is not named after it.
LIBRARY_OF_VERSION = {"NVSHMEM": "libnvshmem_host.so.3"}

SOURCE = """\
#include <stdio.h>
#include <stdlib.h>
#define STAND_IN(name)                                                                              \\
  void name(void) {                                                                                 \\
    fputs("attnbench: " #name " was called, a function of a CUDA library that is not installed; "   \\
          "`make setup` installs torch with all of its CUDA libraries\\n", stderr);                  \\
    abort();                                                                                        \\
  }
"""


def output_of(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def needed(library: Path) -> list[str]:
    """The libraries that a library loads."""
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-d", str(library)))


def symbols(library: Path, which: str) -> set[str]:
    """The names of symbols with their versions, such as "cublasCreate_v2@libcublas.so.13"."""
    lines = [line.split() for line in output_of("nm", "-D", which, str(library)).splitlines()]
    return {line[-1].replace("@@", "@") for line in lines if line[-2] != "w"}


def main(torch: Path, compiler: str, output: Path) -> None:
    folder = torch / "lib"
    loaded = [folder / name for name in LOADED if (folder / name).exists()]
    names = {name for library in loaded for name in needed(library)}
    missing = sorted(
        name for name in names if re.match(r"lib(cu|nv|nccl)", name) and not name.startswith(INSTALLED)
    )
    used = {symbol for library in loaded for symbol in symbols(library, "--undefined-only")}
    versions = {LIBRARY_OF_VERSION.get(version, version): version for _, _, version in (s.partition("@") for s in used)}
    # Symbols without a version may be of any of the libraries, so that each stand-in has them.
    prefixes = re.compile(r"(cu|nv|nccl)[A-Za-z]")
    unversioned = {s for s in used if "@" not in s and prefixes.match(s)}
    sources = output / "sources"
    sources.mkdir(parents=True, exist_ok=True)
    for name in missing:
        version = versions.get(name)
        own = {s.partition("@")[0] for s in used if version and s.endswith(f"@{version}")}
        source = sources / f"{name}.c"
        source.write_text(SOURCE + "".join(f"STAND_IN({symbol})\n" for symbol in sorted(own | unversioned)))
        words = [compiler, "-x", "c", "-shared", "-fPIC", "-w", f"-Wl,-soname,{name}", "-o", str(output / name), str(source)]
        if version:
            script = sources / f"{name}.map"
            script.write_text(f"{version} {{ global: *; }};\n")
            words.append(f"-Wl,--version-script={script}")
        subprocess.run(words, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
