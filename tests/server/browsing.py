"""What the tests of the chat page share: Chromium without a window, driven by PyPI's playwright, and the few things a reader
does. Chromium is Debian's; no browser is downloaded. Screenshots of a failed test, and those of long_page.py, go to
$BITNET_SCREENSHOTS, else nowhere."""
import copy
import os
import shutil
import sys
import time

from serving import Skip, check, packages

packages("playwright")
from playwright.sync_api import sync_playwright  # noqa: E402

CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
SCREENSHOTS = os.environ.get("BITNET_SCREENSHOTS")
if CHROMIUM is None:
    print("skipped: Chromium is not there (tools/setup test installs it)")
    sys.exit(77)

_browser = []


def browser():
    """The one browser of this program; it ends with the program."""
    if not _browser:
        engine = sync_playwright().start()
        options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb"]
        _browser.append(engine.chromium.launch(executable_path=CHROMIUM, args=options))
    return _browser[0]


class Tab:
    """A reader with a browser of their own: with Tab(url) as t. Whatever the page logs as an error, or throws, fails the test
    at the end of the block, unless `may_log` is in it."""

    def __init__(self, url, width=1280, height=860, scheme="light", may_log=None, **more):
        self.url, self.may_log, self.problems = url, may_log, []
        self.context = browser().new_context(viewport={"width": width, "height": height}, color_scheme=scheme, accept_downloads=True, **more)
        self.context.set_default_timeout(20000)
        self.page = self.context.new_page()
        self.watch(self.page)
        self.page.goto(url)
        self.ready()

    def watch(self, page):
        page.on("pageerror", lambda e: self.problems.append(f"threw: {e}"))
        page.on("console", lambda m: self.problems.append(f"logged: {m.text}") if m.type == "error" else None)

    def beside(self):
        """Another tab of the same browser, at the same conversation."""
        tab = copy.copy(self)
        tab.page = self.context.new_page()
        tab.watch(tab.page)
        tab.page.goto(self.page.url)
        tab.ready()
        return tab

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None and SCREENSHOTS:
            self.shot("failed")
        self.context.close()
        if kind is None:
            left = [p for p in self.problems if not (self.may_log and self.may_log in p)]
            check(not left, f"the page {left[:3]}")

    def shot(self, name):
        if SCREENSHOTS:
            os.makedirs(SCREENSHOTS, exist_ok=True)
            self.page.screenshot(path=os.path.join(SCREENSHOTS, name + ".png"))

    def ready(self):
        self.page.wait_for_selector("#send[data-icon]")

    # ---- what a reader does ----
    def send(self, text, wait=True):
        self.page.fill("#composer-text", text)
        self.page.press("#composer-text", "Enter")
        if wait:
            self.finished()

    def finished(self):
        self.page.wait_for_selector("#send[data-icon=up]")

    def running(self):
        self.page.wait_for_selector("#send[data-icon=stop]")

    def until(self, what, condition, seconds=20):
        end = time.monotonic() + seconds
        while not condition():
            check(time.monotonic() < end, f"{what}: not within {seconds} s")
            self.page.wait_for_timeout(30)

    # ---- what a reader sees ----
    def messages(self):
        """[(role, text)] as shown."""
        return self.page.eval_on_selector_all("article.message", """all => all.map(a =>
            [a.classList.contains("user") ? "user" : "assistant", a.querySelector(".body")?.innerText ?? ""])""")

    def last(self):
        return self.page.locator("article.message").last

    def text(self, selector):
        return self.page.inner_text(selector)

    def titles(self):
        return self.page.eval_on_selector_all("#list .open", "all => all.map(b => b.textContent)")

    def sideways(self):
        """How many pixels the page is wider than the window."""
        return self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def axe_finds(page):
    """What axe calls serious or critical: [(rule, element)]."""
    packages("axe_playwright_python")
    from axe_playwright_python.sync_playwright import Axe
    found = Axe().run(page).response["violations"]
    return [(v["id"], v["nodes"][0]["html"][:200]) for v in found if v["impact"] in ("serious", "critical")]


def render(page, text):
    """Markdown as the page makes elements of it: the milliseconds that it took, and how deep they are in one another."""
    return page.evaluate("""async (text) => {
        const {render} = await import(new URL("markdown.js", location.href).href);
        const box = document.createElement("div");
        const began = performance.now();
        render(box, text);
        const took = performance.now() - began;
        let depth = 0;
        for (const e of box.querySelectorAll("*")) {
            if (e.firstElementChild) continue;
            let d = 0;
            for (let p = e; p !== box; p = p.parentNode) d++;
            depth = Math.max(depth, d);
        }
        return [took, depth];
    }""", text)


__all__ = ["Tab", "axe_finds", "browser", "render", "Skip"]
