#!/usr/bin/env bash
# Installs what the build, the figures and the tests need: system packages with apt, Python packages into .venv.
# Does nothing that is already done. TORCH_INDEX names another package index to take torch from, for example
# PyTorch's CPU-only one.
set -euo pipefail
cd "$(dirname "$0")"

packages=(g++ cmake ninja-build git python3 python3-venv libfmt-dev libcli11-dev libtomlplusplus-dev
          nlohmann-json3-dev libgtest-dev libbenchmark-dev valgrind)

what_is_needed() {
  cat <<TEXT
attnbench needs, besides make:
  g++ 12 or newer, CMake 3.25 or newer, Ninja, git
  Python 3.11 or newer with its venv module
  valgrind, for counting instructions (gate --instructions, and its test)
  fmt 9, CLI11 2.1, toml++ 3.3, nlohmann-json 3.11, GoogleTest 1.12, Google Benchmark 1.7, or newer
    (CMake fetches those libraries itself where they are missing)
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
      command -v sudo >/dev/null || fail "not root and no sudo; install as root: apt-get install ${missing[*]}"
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
    fail "apt is not here to install them; missing: ${absent[*]}"
  fi
fi
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { what_is_needed >&2; fail "python3 is older than 3.11"; }

# --- Python packages
wanted="$(cat requirements.txt) ${TORCH_INDEX:-}"
if [ "$(cat .venv/.installed 2>/dev/null)" != "$wanted" ]; then
  echo "setup: installing Python packages into .venv (torch with its CUDA libraries is 4.8 GB)"
  # A venv whose interpreter is gone cannot be repaired in place.
  .venv/bin/python -c '' 2>/dev/null || python3 -m venv --clear .venv
  if [ -n "${TORCH_INDEX:-}" ]; then
    .venv/bin/pip install -q --disable-pip-version-check --index-url "$TORCH_INDEX" "$(grep '^torch==' requirements.txt)"
  fi
  .venv/bin/pip install -q --disable-pip-version-check -r requirements.txt
  printf '%s' "$wanted" > .venv/.installed
fi
