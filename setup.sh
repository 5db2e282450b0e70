#!/usr/bin/env bash
# Installs what is missing: system packages with apt, and Python packages into .venv.
#
#   ./setup.sh build    what the programs, methods in Python and the figures need: 630 MB of Python packages to download, 1.5 GB on
#                       the disk. Of the CUDA libraries these are only the two that LibTorch calls on a CPU. `import torch` loads
#                       ten more, which are 1.7 GB to download and are never called on a CPU; for methods in Python the build makes
#                       stand-ins for them (cmake/cuda_stand_ins.py).
#   ./setup.sh          also what the tests, the Python operators and the CUDA build need: another 2.3 GB to download
#   ./setup.sh lint     also clang-tidy
#
# Set TORCH_INDEX to install torch from another package index, for example from one of CPU-only wheels.
set -euo pipefail
cd "$(dirname "$0")"

part="${1:-all}"
# Ubuntu has Chromium under another name.
chromium=chromium
if grep -qs '^ID=ubuntu' /etc/os-release; then chromium=chromium-browser; fi
packages=(g++ cmake ninja-build git python3 python3-venv libfmt-dev libcli11-dev libtomlplusplus-dev
          nlohmann-json3-dev rapidjson-dev libgtest-dev libbenchmark-dev zlib1g-dev python3-dev)
case "$part" in
  build) ;;
  all) packages+=(valgrind libbenchmark-tools cmark-gfm "$chromium" libespeak-ng1 hyperfine) ;;
  lint) packages+=(valgrind libbenchmark-tools cmark-gfm "$chromium" libespeak-ng1 hyperfine clang-tidy-16); part=all ;;
  *) echo "setup: unknown part '$part', expected build, lint, or nothing" >&2; exit 2 ;;
esac
# The tests run the kernels for ARM in an emulator.
if [ "$part" = all ] && [ "$(uname -m)" = x86_64 ]; then packages+=(g++-aarch64-linux-gnu qemu-user); fi

what_is_needed() {
  cat <<'TEXT'
attnbench needs, besides make:
  g++ 12 or newer, CMake 3.25 or newer, Ninja, git
  Python 3.11 or newer with its venv module
  for the tests also valgrind ('attnbench gate --instructions' counts instructions with it), and g++-aarch64-linux-gnu and qemu-user
    (without them the kernels for ARM are not tested), libbenchmark-tools (its compare.py reads an export), cmark-gfm (renders the comment of the gate), chromium (the pages of `attnbench report` are opened in it),
    libespeak-ng1, 5 MB, which speaks the sentences of the speech data, and hyperfine, whose results the gate reads;
    for lint clang-tidy 16
  fmt 9, CLI11 2.1, toml++ 3.3, nlohmann-json 3.11, RapidJSON of 2017 or newer, GoogleTest 1.12, Google Benchmark 1.7, or newer
    (CMake fetches these libraries itself if they are missing)
  zlib 1.2 or newer, and for methods in Python also Python, each with its headers
TEXT
}

fail() {
  echo "setup: $1" >&2
  exit 1
}

# --- system packages
if command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; then
  missing=()
  for package in "${packages[@]}"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    echo "setup: installing ${missing[*]}"
    sudo=()
    if [ "$(id -u)" -ne 0 ]; then
      command -v sudo >/dev/null || fail "there is no sudo; install the missing packages as root: apt-get install ${missing[*]}"
      sudo=(sudo)
    fi
    "${sudo[@]}" apt-get update -qq
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  fi
else
  absent=()
  for tool in g++ cmake ninja git python3; do command -v "$tool" >/dev/null || absent+=("$tool"); done
  if [ ${#absent[@]} -gt 0 ]; then
    what_is_needed >&2
    fail "there is no apt to install the missing programs: ${absent[*]}"
  fi
fi
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { what_is_needed >&2; fail "python3 is older than 3.11"; }

# --- Python packages
# .venv/.installed holds the part and the requirements that were installed last.
wanted="$part $(cat requirements.txt requirements-build.txt requirements-fla.txt) ${TORCH_INDEX:-}"
everything="all${wanted#"$part"}"
installed="$(cat .venv/.installed 2>/dev/null || true)"
if [ "$installed" != "$wanted" ] && [ "$installed" != "$everything" ]; then
  # A venv whose interpreter was removed cannot be repaired in place, so it is made again.
  .venv/bin/python -c '' 2>/dev/null || python3 -m venv --clear .venv
  pip() { .venv/bin/pip install -q --disable-pip-version-check "$@"; }
  if [ -n "${TORCH_INDEX:-}" ]; then
    pip --index-url "$TORCH_INDEX" "$(grep '^torch==' requirements-build.txt)"
  fi
  if [ "$part" = build ]; then
    echo "setup: installing torch without most of its CUDA libraries, and what the figures and the report need, into .venv (630 MB to download)"
    # torch comes last, because pip would warn of each of its packages that is left out.
    pip $(grep -E '^(numpy|matplotlib|altair|vl-convert-python|Jinja2)==' requirements.txt)
    if [ -z "${TORCH_INDEX:-}" ]; then
      pip --no-deps -r requirements-build.txt
    fi
  else
    echo "setup: installing Python packages into .venv (torch with its CUDA libraries is 4.8 GB)"
    pip -r requirements.txt
    pip --no-deps --upgrade --target .venv/fla -r requirements-fla.txt
    # Only the source distribution of transformers has its tests.
    .venv/bin/pip download -q --disable-pip-version-check --no-deps --no-build-isolation --no-binary transformers \
      --dest .venv/sources "$(grep '^transformers==' requirements.txt)"
    rm -rf .venv/transformers-tests
    mkdir .venv/transformers-tests
    tar --extract --gzip --file "$(ls .venv/sources/transformers-*.tar.gz | tail -1)" --directory .venv/transformers-tests \
      --strip-components=2 --wildcards '*/tests/*.py'
  fi
  # `import attnbench` in .venv finds the package of this checkout.
  packages_folder="$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
  printf '%s\n' "$PWD/python" > "$packages_folder/attnbench-checkout.pth"
  printf '%s' "$wanted" > .venv/.installed
fi
