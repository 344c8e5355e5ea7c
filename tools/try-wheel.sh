#!/bin/sh
# try-wheel.sh PYTHON: build the wheel, install it into an empty folder, and use it with the repository out of sight.
set -eu
python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1") # it is used from another folder
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m build --wheel --outdir "$work/dist" . >"$work/build.log" 2>&1 || { cat "$work/build.log" >&2; exit 1; }
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$work/site" "$work"/dist/*.whl
cd "$work"
export PYTHONPATH="$work/site" ISTHMUS_HOME="$work/home"
"$python" -c "import isthmus; assert isthmus.__file__.startswith('$work'), isthmus.__file__"
"$python" -m isthmus describe hourglass_mlp d_in=784 d_out=784 d_z=785 d_h=16 depth=4
"$python" -m isthmus train mnist5k-denoise model.d_h=16 model.depth=1 train.epochs=1
"$python" -m isthmus report --out "$work/page"
test -s "$work/page/index.html"
"$python" - <<'END'
import re
from starlette.testclient import TestClient
from isthmus.studio.server import create_app

client = TestClient(create_app(), base_url="http://127.0.0.1:8642")
page = client.get("/")
addresses = sorted({"/static/plotly.js", *re.findall(r'(?:src|href)="(/static/[^"?]+)', page.text)})
assert "/static/studio.js" in addresses, addresses
for answer in [page, client.get("/design"), *map(client.get, addresses)]:
    assert answer.status_code == 200 and answer.text.strip(), answer.url
    print(answer.url, len(answer.content))
END
echo "the wheel works without the repository"
