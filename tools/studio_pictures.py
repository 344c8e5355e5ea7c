"""Screenshots of a running studio for the docs: python tools/studio_pictures.py ADDRESS NAME=PATH… [--out docs/images].

Each page is photographed light, dark and narrow: studio-NAME.png, studio-NAME-dark.png, studio-NAME-narrow.png.
"""

import argparse
import io
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

LOOKS = {"": (1100, 760, "light"), "-dark": (1100, 760, "dark"), "-narrow": (400, 760, "light")}
TALLEST = 1900
"""Pixels of a picture; longer pages are cut."""


def photograph(address: str, pages: dict[str, str], out: Path) -> None:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, path in pages.items():
            for ending, (width, height, scheme) in LOOKS.items():
                page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
                page.goto(address.rstrip("/") + path, timeout=120_000)
                for unfinished in ("[data-again]", "section:not([hidden]) > .plot:not(:has(.main-svg))"):
                    page.wait_for_selector(unfinished, state="detached", timeout=120_000)
                page.wait_for_timeout(500)
                whole = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
                picture = whole.crop((0, 0, width, min(whole.height, TALLEST)))
                picture.quantize(96).save(out / f"studio-{name}{ending}.png", optimize=True)
                page.close()
        browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("pages", nargs="+", metavar="NAME=PATH")
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    given = parser.parse_args()
    photograph(given.address, dict(page.split("=", 1) for page in given.pages), given.out)
