"""A page of a report in a real browser, which tells what it saw."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1000,1600",
)
WATCH = """<script>
window.seen = { refused: [], errors: [] };
addEventListener("securitypolicyviolation", (event) => seen.refused.push(event.blockedURI));
addEventListener("error", (event) => seen.errors.push(event.message));
</script>"""
TELL = """
const result = document.createElement("pre");
result.id = "seen";
result.textContent = btoa(unescape(encodeURIComponent(JSON.stringify(seen))));
document.body.append(result);
"""


def browse(page: Path, script: str, *flags: str) -> dict:
    """Open a copy of the page that runs this script at its end, and read back what the script put into ``seen``."""
    if BROWSER is None:
        pytest.skip("there is no Chromium on this machine")
    text = page.read_text(encoding="utf-8").replace("<title>", f"{WATCH}<title>", 1)
    head, end, tail = text.rpartition("</body>")
    copy = page.with_name("tried.html")
    copy.write_text(f"{head}<script>{script}{TELL}</script>{end}{tail}", encoding="utf-8")
    profile = page.parent / "profile"
    command = [BROWSER, *FLAGS, *flags, f"--user-data-dir={profile}", "--dump-dom", copy.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout
    shutil.rmtree(profile, ignore_errors=True)
    found = re.search(r'<pre id="seen">([^<]*)</pre>', shown)
    assert found, "the page's script did not come to its end"
    result: dict = json.loads(base64.b64decode(found.group(1)))
    return result
