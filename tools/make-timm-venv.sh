#!/bin/sh
# make-timm-venv.sh FOLDER: an environment with timm. Its torchvision loads only beside the registry's full build of torch.
# In a folder that has one already, only what is missing is installed.
set -eu
folder=$1
python=${PYTHON:-python3}

if ! "$folder/bin/python" -c 'import timm' 2>/dev/null; then
    free=$(df -Pk . | awk 'NR == 2 {print int($4 / 1048576)}')
    if [ "$free" -lt 12 ]; then
        echo "isthmus: only $free GB free on this disk; the environment of timm needs 12 while it is made" >&2
        exit 2
    fi
    echo "installing timm with the full build of torch: about 5 GB"
    "$python" -m venv "$folder"
fi
install() { "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
# === leaves out builds with a local version, such as +cpu, which an index of CPU builds would offer.
install 'torch===2.13.0' torchvision==0.28.0 timm==1.0.30
install --constraint constraints.txt --editable . beartype hypothesis pytest pytest-timeout
