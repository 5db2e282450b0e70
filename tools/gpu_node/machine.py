"""What the machine has: the driver, the GPU, and a Python with torch."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional

from gpu_node.files import UnfitError

# By major version of CUDA: the oldest driver for Linux that runs its programs, from the release notes of CUDA.
OLDEST_DRIVERS = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}


@dataclass
class Gpu:
    name: str
    capability: str  # such as "9.0"
    driver: str  # such as "580.95.05"


def needed_driver(cuda: str) -> str:
    """What driver a program of this CUDA version needs, in words."""
    major = int(cuda.split(".")[0])
    oldest = OLDEST_DRIVERS.get(major)
    return f"a driver for CUDA {major}.0 or newer" + (f", which is {oldest} or newer" if oldest else "")


def find_gpu(cuda: str) -> Gpu:
    """Asks NVML, which every driver brings with it, about the first visible GPU."""
    wanted = f"the driver of an NVIDIA GPU; the kernels need {needed_driver(cuda)}"
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        raise UnfitError(f"there is no NVIDIA driver ({error}); expected {wanted}") from error

    def ask(name: str, *arguments: Any) -> None:
        code = getattr(nvml, name)(*arguments)
        if code:
            nvml.nvmlErrorString.restype = ctypes.c_char_p
            said = (nvml.nvmlErrorString(code) or b"").decode(errors="replace")
            raise UnfitError(f"the NVIDIA driver does not work: {name} failed: {said or code}; expected {wanted}")

    def text(name: str, *arguments: Any) -> str:
        buffer = ctypes.create_string_buffer(256)
        ask(name, *arguments, buffer, 256)
        return buffer.value.decode(errors="replace")

    ask("nvmlInit_v2")
    count, version = ctypes.c_uint(), ctypes.c_int()
    ask("nvmlDeviceGetCount_v2", ctypes.byref(count))
    if count.value == 0:
        raise UnfitError(f"the NVIDIA driver finds no GPU; expected {wanted}")
    driver = text("nvmlSystemGetDriverVersion")
    ask("nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(version))
    handle = ctypes.c_void_p()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    if visible.isdigit():
        ask("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(int(visible)), ctypes.byref(handle))
    elif visible.startswith("GPU-"):
        ask("nvmlDeviceGetHandleByUUID", visible.encode(), ctypes.byref(handle))
    else:
        raise UnfitError(
            f"CUDA_VISIBLE_DEVICES = '{os.environ['CUDA_VISIBLE_DEVICES']}'; expected the index of a GPU, or its UUID GPU-…"
        )
    major, minor = ctypes.c_int(), ctypes.c_int()
    ask("nvmlDeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor))
    supported = f"{version.value // 1000}.{version.value % 1000 // 10}"
    if version.value // 1000 < int(cuda.split(".")[0]):
        raise UnfitError(
            f"the driver {driver} supports CUDA up to {supported}, which is too old for kernels of CUDA {cuda}; expected "
            f"{needed_driver(cuda)}"
        )
    return Gpu(text("nvmlDeviceGetName", handle), f"{major.value}.{minor.value}", driver)


def check_kernels(gpu: Gpu, kernels: List[str]) -> None:
    """Refuses a GPU that is older than every architecture that the kernels were compiled for."""
    found = int(gpu.capability.replace(".", ""))
    compiled = sorted({int(form.split("_")[1]) for form in kernels if form.startswith("compute_")})
    if compiled and found < compiled[0]:
        raise UnfitError(
            f"{gpu.name} has compute capability {gpu.capability}, but the kernels of this bundle are for "
            f"{', '.join(kernels)}; expected at least {compiled[0] // 10}.{compiled[0] % 10}, or a bundle of "
            f"`make gpu-bundle CUDA_ARCHITECTURES={found}`"
        )


ASK_PYTHON = """
import importlib.util, json, os, sys, sysconfig
find = lambda name: importlib.util.find_spec(name) is not None
torch = importlib.util.find_spec("torch")
library = sysconfig.get_config_var("INSTSONAME") or "libpython%d.%d.so.1.0" % sys.version_info[:2]
libdir = sysconfig.get_config_var("LIBDIR") or "/usr/lib"
folders = [libdir, os.path.join(libdir, sysconfig.get_config_var("MULTIARCH") or ""), sysconfig.get_config_var("LIBPL") or ""]
print(json.dumps({
    "torch": os.path.dirname(torch.origin) if torch and torch.origin else None,
    "version": "%d.%d.%d" % sys.version_info[:3],
    "include": sysconfig.get_path("include"), "library": library,
    "libdir": next((d for d in folders if os.path.exists(os.path.join(d, library))), None),
    "pytest": find("pytest"), "fla": find("fla"), "triton": find("triton"),
}))
"""


def ask_python(python: str) -> Optional[Dict[str, Any]]:
    """What a Python says of itself and of its torch; None if it does not run."""
    try:
        done = subprocess.run([python, "-c", ASK_PYTHON], capture_output=True, text=True, check=True, timeout=120)
        answer: Dict[str, Any] = json.loads(done.stdout)
        return answer
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


@dataclass
class Node:
    """What this machine has: the folder of torch, and the Python whose torch that is."""

    torch: Path
    python: str = ""  # empty if none was found
    about: Dict[str, Any] = field(default_factory=dict)  # what ask_python() says of it


def find_node(torch: str, python: str) -> Node:
    """Finds torch: in the named folder, or else in the named Python, in this one, or in the first python3 in PATH."""
    if torch:
        folder = Path(torch).resolve()
        # …/lib/python3.12/site-packages/torch belongs to …/bin/python3.
        beside = [str(parent / "bin/python3") for parent in folder.parents[2:5]]
        pythons = [python] if python else [p for p in [*beside, sys.executable] if p and os.access(p, os.X_OK)]
    else:
        folder = None
        pythons = [python] if python else [p for p in (sys.executable, shutil.which("python3")) if p]
    seen = []
    for candidate in dict.fromkeys(pythons):
        about = ask_python(candidate)
        seen.append(f"{candidate} ({'does not run' if about is None else 'has no torch' if not about['torch'] else about['torch']})")
        if about is None or not about["torch"]:
            continue
        if folder is None or Path(about["torch"]).resolve() == folder:
            return Node(Path(about["torch"]), candidate, about)
    if folder is None:
        raise UnfitError(f"no torch was found; looked at {', '.join(seen)}; expected its folder in --torch, or its Python in --python")
    if python:
        raise UnfitError(f"--python {python} and --torch {folder} do not belong together; the torch found was of {seen[0]}")
    return Node(folder)
