"""The chat page in a real browser, the short way through: a conversation with `bitnet serve` itself (talk, stop, another
answer, edit, branches, a reload, a restart of the server), then hostile text and accessibility. long_page.py has the rest."""
import json
import time

import serving
from browsing import Tab, axe_finds, render
from mock_server import Mock, policy
from serving import check, equal, main, model, run, temp, write


def real_server(*args):
    return serving.Server("--model", model("story"), *args)


def branch(tab):
    return tab.last().locator(".branch span").inner_text()


def test_conversation():
    """Everything a first conversation needs, with the model that comes along."""
    with real_server() as s, Tab(s.url + "/", may_log="Failed to load resource") as t:
        t.send("What is 7 + 5?")
        equal([m[0] for m in t.messages()], ["user", "assistant"], "roles")
        first = t.messages()[1][1]
        check(first, "no answer")
        check("tokens" in t.last().locator(".facts").inner_text(), "no count of tokens")
        t.page.wait_for_selector("article.last .receipt:not([hidden])")
        check("kernel" in t.last().locator(".receipt summary").inner_text(), "no kernels")
        t.page.click("article.last .receipt summary")
        with t.page.expect_download() as d:
            t.page.get_by_role("button", name="Save the receipt").click()
        d.value.save_as(temp("receipt.json"))
        verified = run("receipt", "verify", temp("receipt.json"))
        equal(verified.code, 0, f"what bitnet receipt verify says to the saved receipt: {verified.err}")
        check("of" in t.text("#context-text") and not t.text("#context-text").startswith("0"), "the context meter stands still")

        t.last().get_by_label("Another answer").click()
        t.finished()
        equal(branch(t), "2/2", "after another answer")
        t.last().get_by_label("Previous version").click()
        equal(t.messages()[1][1], first, "the first answer")

        stop_in_the_middle(t)
        edit_and_branch(t)
        before = t.messages()
        t.page.reload()
        t.ready()
        equal(t.messages(), before, "after a reload")
        port = s.port
        s.stop()
        t.send("Are you there?", wait=False)
        t.page.wait_for_selector("article.last .trouble:not([hidden])")
        with real_server("--port", str(port)):
            t.page.wait_for_selector("#banner[hidden]", state="attached")
            t.last().get_by_role("button", name="Try again").click()
            t.finished()
            check(t.messages()[-1][1], "no answer after the restart")


def test_files():
    """The server sends the page with its policy, says when a browser has it already, and asks for no key for it."""
    with real_server("--api-key", "sesame") as s:
        for path, kind in (("/", "text/html"), ("/style.css", "text/css"), ("/app.js", "text/javascript"), ("/icon.svg", "image/svg+xml")):
            status, headers, body = s.get(path)
            equal(status, 200, path)
            check(headers["content-type"].startswith(kind), f"{path}: {headers['content-type']}")
            equal(headers["content-security-policy"], policy(), f"the policy of {path}")
            equal(headers["x-content-type-options"], "nosniff", path)
            equal(int(headers["content-length"]), len(body), path)
            equal(s.get(path, headers={"If-None-Match": headers["etag"]})[0::2], (304, b""), f"{path} again")
            tag = headers["etag"]
            for known, want in (("*", 304), (f'"x", {tag}', 304), (f'W/"x",W/{tag} , "y"', 304), ('"x,y" , , ' + tag, 304), (f'"x{tag}', 200),
                                ('"x"', 200), (tag.strip('"'), 200), (tag[:-1], 200), ("W/", 200), ('"*"', 200), ("", 200), (",", 200)):
                equal(s.get(path, headers={"If-None-Match": known})[0], want, f"If-None-Match: {known}")
        equal(s.get("/web.h")[0] in (401, 404), True, "a file that is not of the page")


def stop_in_the_middle(t):
    t.send("Tell me a long story about a fox", wait=False)
    t.running()
    t.page.press("#composer-text", "Escape")
    t.finished()
    check("stopped" in t.last().locator(".facts").inner_text() or t.messages()[-1][1], "neither stopped nor answered")


def edit_and_branch(t):
    mine = t.page.locator("article.user").last
    mine.hover()
    mine.get_by_label("Edit this message").click()
    mine.locator("textarea").fill("What is the opposite of hot?")
    mine.locator("textarea").press("Enter")
    t.finished()
    equal(t.messages()[-2], ["user", "What is the opposite of hot?"], "the edited message")
    equal(t.page.locator("article.user .branch span").last.inner_text(), "2/2", "branches of the message")


def test_hostile_text():
    """Whatever a model says is text: nothing runs, nothing is fetched, no link leads to a script."""
    mock = Mock()
    with Tab(mock.url) as t:
        t.page.evaluate("window.hacked = 0")
        t.send("hostile")
        t.page.wait_for_selector("article.last .receipt:not([hidden])")
        body = t.last().locator(".body")
        for a in body.locator("a").all():
            check(a.get_attribute("href").startswith(("https://", "mailto:")), f"a link to {a.get_attribute('href')}")
            check("noopener" in a.get_attribute("rel"), "a link without noopener")
        equal(body.locator("img, script, iframe, style, svg:not(.icon), [onclick], [onerror]").count(), 0, "elements made of text")
        equal(body.locator("a").count(), 3, "links (two to the web, one to a mail address)")
        equal(t.page.evaluate("window.hacked"), 0, "something ran")
        check("<img src=x onerror" in body.inner_text(), "the text is not shown as it is")
        strange = [r for r in mock.requests if r not in ("/", "/health", "/props", "/v1/models") and not r.endswith((".js", ".css", ".svg")) and "receipts" not in r]
        equal(strange, [], "things fetched because of the text")
    mock.stop()


def test_time_of_markdown():
    """The time is in proportion to the text, and none is too long: each of these was slow, or threw."""
    mock = Mock()
    with Tab(mock.url) as t:
        for name, text in (("pictures in pictures", lambda n: "![a" * (n // 7) + "](x)" * (n // 7)), ("code after a space", lambda n: "` " + "a" * n + "`"),
                           ("heading of spaces", lambda n: ("# " + " " * 19000 + "\u2028\n") * (n // 19000)), ("lines of an item", lambda n: "- a\n" + "a\n" * n)):
            took, depth = min(render(t.page, text(200000)) for _ in range(2))  # the machine may be busy
            half = 0 if took < 3000 else max(render(t.page, text(100000))[0] for _ in range(2))  # or slow: four times as long is too much, twice is not
            check(took < max(3000, 3 * half) and depth < 60, f"{name}: {took:.0f} ms, {half:.0f} for half of it, {depth} elements in one another")
    mock.stop()


def test_times_ahead():
    """What is done last holds, also in a conversation whose times lie ahead: in a file of another clock, or since the clock was set back."""
    mock = Mock()
    for what, hours, back in (("a file of another clock", 1, 0), ("a clock that was set back", -1, 2)):
        at = time.time() * 1000 + hours * 3600e3
        failed = {"parent": 0, "role": "assistant", "text": "", "ended": "failed", "trouble": "busy", "created": at, "written": at}
        with Tab(mock.url) as t:
            t.page.set_input_files("#file", write("ahead.json", json.dumps({"format": "bitnet-conversations", "version": 1, "conversations": [
                {"title": "old", "system": "old", "updated": at, "messages": [{"parent": -1, "role": "user", "text": "hello", "created": at}, failed]}]})))
            t.until("the conversation", lambda t=t: t.titles() == ["old"])
            t.page.evaluate("(hours) => { const now = Date.now; Date.now = () => now() - hours * 3600e3; }", back)
            t.page.fill("#title", "new")
            t.page.press("#title", "Tab")
            t.page.click("#settings-open")
            t.page.fill("#system", "new")
            t.page.click("#settings .primary")
            t.last().get_by_role("button", name="Try again").click()
            t.finished()
            t.page.wait_for_timeout(200)  # the browser writes in its own time
            check_last_holds(t, what)
            t.page.reload()
            t.ready()
            check_last_holds(t, what + ", after a reload")
    mock.stop()


def check_last_holds(t, what):
    equal([t.titles(), t.page.text_content("details.system p")], [["new"], "new"], f"{what}: title and system prompt")
    check("Once upon" in t.messages()[-1][1], f"{what}: the answer is {t.messages()[-1][1]!r}")


def test_accessible():
    """axe finds nothing serious: the conversation, the settings, in both themes."""
    mock = Mock()
    for scheme in ("light", "dark"):
        with Tab(mock.url, scheme=scheme) as t:
            equal(axe_finds(t.page), [], f"axe on the empty page, {scheme}")
            t.send("markdown")
            t.page.wait_for_selector("article.last .receipt:not([hidden])")
            equal(axe_finds(t.page), [], f"axe on a conversation, {scheme}")
            t.page.click("#settings-open")
            equal(axe_finds(t.page), [], f"axe on the settings, {scheme}")
    mock.stop()


if __name__ == "__main__":
    main(globals())
