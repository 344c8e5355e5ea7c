"""A part of a page as a small PNG, for the gallery: python tools/picture.py PAGE SELECTOR OUT.png [WIDTH]."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage")
ALONE = """<script>
addEventListener("load", () => setTimeout(() => {{
  const parts = document.querySelectorAll({selector!r});
  for (const part of document.querySelectorAll("body *"))
    if (![...parts].some((kept) => kept.contains(part) || part.contains(kept))) part.style.display = "none";
}}, 1500));
</script>"""


def photograph(page: Path, selector: str, out: Path, width: int) -> None:
    """Hide everything but the selected elements, let Chromium draw the rest, and crop the margins."""
    if BROWSER is None:
        sys.exit("picture.py: there is no Chromium; on Debian: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        copy, shot = Path(folder, "page.html"), Path(folder, "shot.png")
        head, end, tail = page.read_text(encoding="utf-8").rpartition("</body>")
        copy.write_text(head + ALONE.format(selector=selector) + end + tail, encoding="utf-8")
        command = [BROWSER, *FLAGS, f"--user-data-dir={folder}/profile", f"--window-size={width},2400"]
        command += ["--virtual-time-budget=8000", f"--screenshot={shot}", copy.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=240)
        picture = Image.open(shot).convert("RGB")
    pixels = np.asarray(picture).astype(int)
    drawn = np.argwhere(np.abs(pixels - pixels[-1, -1]).sum(axis=2) > 12)
    top, left, bottom, right = *drawn.min(axis=0), *drawn.max(axis=0)
    box = (max(0, left - 12), max(0, top - 12), min(picture.width, right + 13), min(picture.height, bottom + 13))
    picture.crop(tuple(map(int, box))).quantize(128).save(out, optimize=True)


if __name__ == "__main__":
    page, selector, out, *width = sys.argv[1:]
    photograph(Path(page), selector, Path(out), int(width[0]) if width else 1000)
