#!/bin/sh
# make-venv.sh FOLDER REQUIREMENT: an environment with exact versions. What would fail later is said before anything starts.
set -eu
folder=$1 requirement=$2
python=${PYTHON:-python3}

fail() {
    echo "isthmus: $1" >&2
    exit 2
}

command -v "$python" >/dev/null || fail "there is no $python; install Python 3.11 or newer, or set PYTHON"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$("$python" --version) is too old; install Python 3.11 or newer, or set PYTHON to one"
"$python" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "this Python has no venv module; on Debian: apt-get install python3-venv"

if [ ! -x "$folder/bin/python" ] || ! "$folder/bin/python" -c 'import torch' 2>/dev/null; then
    free=$(df -Pk . | awk 'NR == 2 {print int($4 / 1024)}')
    [ "$free" -ge 3000 ] || fail "only $free MB free on this disk; the environment takes about 2000 MB (without CUDA)"
    rm -rf "$folder"
    "$python" -m venv "$folder"
    torch=$(sed -n 's/^torch==/torch==/p' constraints.txt)
    index=${TORCH_INDEX:+--index-url $TORCH_INDEX}
    echo "installing $torch: about 200 MB as a CPU build (TORCH_INDEX can name an index of them), several GB with CUDA"
    # shellcheck disable=SC2086 # an empty index must vanish
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check $index --constraint constraints.txt "$torch"
fi
echo "installing isthmus and what it needs, with the versions of constraints.txt"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable "$requirement"
