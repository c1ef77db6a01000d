"""A real browser for the pages' tests, and how a page is shown in it: in which light, how wide, on what."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
SWITCHES = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run", "--hide-scrollbars",
)  # fmt: skip

OWN_PAGES = ("chrome:", "chrome-untrusted:")
"""What the browser asks of itself: its new-tab page and that page's frames, which may still load when ours is shown."""


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """Start a browser with a profile of its own; where there is none it is skipped, but never in CI."""
    if BROWSER is None or DRIVER is None:
        reason = "chromium and chromedriver are needed to look at the page"
        if os.environ.get("CI"):
            pytest.fail(f"{reason}; CI must not skip this")
        pytest.skip(reason)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for switch in (*SWITCHES, f"--user-data-dir={profile}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def show(browser: Any, url: str, *, scheme: str = "light", media: str = "", width: int = 1280) -> None:
    """Open a page; below 500 px as a phone would."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(url)


def requested_urls(browser: Any, url: str) -> set[str]:
    """Show a page, and return what the browser asked for; fails where the page logs anything."""
    for kind in ("browser", "performance"):  # of the pages before
        browser.get_log(kind)
    show(browser, url)
    assert browser.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"}
    return {found for found in asked if not found.startswith(OWN_PAGES)} - {"data:,"}
