"""The chat page in a real browser, all of it: against a server that misbehaves on demand (mock_server.py)."""
import json

from browsing import Tab, axe_finds, browser, render
from mock_server import Mock
from serving import check, equal, main, temp, write


def with_mock(test):
    """The test gets a mock of its own."""
    def run():
        mock = Mock()
        try:
            test(mock)
        finally:
            mock.stop()
    run.__doc__ = test.__doc__
    return run


def answer(t):
    return t.messages()[-1][1]


def facts(t):
    return t.last().locator(".facts").inner_text()


def settings(t, **fields):
    t.page.click("#settings-open")
    for name, value in fields.items():
        if isinstance(value, bool):
            t.page.set_checked("#set-" + name, value)
        else:
            t.page.fill("#system" if name == "system" else "#set-" + name, value)
    t.page.click("#settings .primary")


# ---- talking ----

@with_mock
def test_streams(mock):
    """The answer grows while it is written, with a rate; then there are counts, context and a receipt."""
    with Tab(mock.url) as t:
        t.send("slow, please", wait=False)
        t.until("a first piece", lambda: len(answer(t)) > 20)
        early = len(answer(t))
        t.until("a rate", lambda: "tokens/s" in t.text("#speed"))
        t.until("more of it", lambda: len(answer(t)) > early + 40)
        equal(t.text("#announce"), "The answer is being written.", "what a screen reader hears meanwhile")
        t.finished()
        check(t.text("#announce").startswith("Answer: [1] Once upon"), "what a screen reader hears at the end")
        check("tokens/s" in facts(t) and "first after" in facts(t), facts(t))
        t.page.click("article.last .receipt summary")
        check("gemv_i2s_r16.dotprod" in t.text("article.last .receipt") and "Mock CPU" in t.text("article.last .receipt"), "the receipt")
        with t.page.expect_download() as d:
            t.page.get_by_role("button", name="Save the receipt").click()
        d.value.save_as(temp("receipt.json"))
        check('"total_time_ms": 1.0' in open(temp("receipt.json"), encoding="utf-8").read(), "a saved receipt has other numbers")
        check("of 512 tokens" in t.text("#context-text"), t.text("#context-text"))


@with_mock
def test_stop(mock):
    """Esc and the button end the request itself; what was written stays; the next message works."""
    with Tab(mock.url) as t:
        for how in ("key", "button"):
            t.send("slow and long", wait=False)
            t.until("a piece", lambda: len(answer(t)) > 30)
            t.page.keyboard.press("Escape") if how == "key" else t.page.click("#send")
            t.finished()
            check("stopped" in facts(t) and len(answer(t)) > 30, facts(t))
        t.until("the server notices", lambda: mock.n_gone == 2)
        t.send("hello")
        check("Once upon" in answer(t), answer(t))


@with_mock
def test_tree(mock):
    """Regenerating and editing make branches; each keeps what follows it; a reload brings all of them back."""
    with Tab(mock.url) as t:
        t.send("one")
        t.send("two")
        first = t.messages()
        t.page.locator("article.assistant").first.hover()
        t.page.locator("article.assistant").first.get_by_label("Another answer").click()
        t.finished()
        equal(len(t.messages()), 2, "messages on the new branch")
        t.page.locator("article.assistant").first.get_by_label("Previous version").click()
        equal(t.messages(), first, "the old branch")
        user = t.page.locator("article.user").last
        user.get_by_label("Edit this message").click()
        user.locator("textarea").press("Escape")
        equal(t.messages(), first, "after an edit that was left")
        user.get_by_label("Edit this message").click()
        user.locator("textarea").fill("three")
        user.get_by_role("button", name="Send").click()
        t.finished()
        equal([m["content"] for m in mock.posted[-1]["messages"] if m["role"] == "user"], ["one", "three"], "what was asked")
        t.page.locator("article.assistant").last.get_by_label("Edit this answer").click()
        t.page.locator("article.assistant textarea").fill("my own words")
        t.page.get_by_role("button", name="Keep").click()
        equal(answer(t), "my own words", "an edited answer")
        now = t.messages()
        t.page.wait_for_timeout(200)
        t.page.reload()
        t.ready()
        equal(t.messages(), now, "after a reload")
        equal(t.page.locator(".branch:not([hidden])").count(), 3, "arrows after a reload")
        t.page.locator("article.user").last.get_by_label("Previous version").click()
        equal(t.messages(), first, "the first branch after a reload")


@with_mock
def test_edit_while_answering(mock):
    """An edit that cannot be sent yet keeps its text, and is sent later."""
    with Tab(mock.url) as t:
        t.send("one")
        t.send("slow and long", wait=False)
        t.page.get_by_label("Edit this message").first.click()
        t.page.fill(".edit textarea", "changed")
        t.page.press(".edit textarea", "Enter")
        t.until("why not", lambda: "is being written" in t.page.text_content("#toast"))
        equal(t.page.input_value(".edit textarea"), "changed", "the text of the edit")
        t.page.press("#composer-text", "Escape")
        t.finished()
        t.page.press(".edit textarea", "Enter")
        t.finished()
        equal(t.messages()[0], ["user", "changed"], "the edited message")
        equal(len(t.messages()), 2, "messages")


@with_mock
def test_settings(mock):
    """What is set is sent, what is empty is not, what is wrong says so; it outlives a reload."""
    with Tab(mock.url) as t:
        t.until("models", lambda: t.page.locator("#model option").count() == 3)
        t.send("a request")
        sent = mock.posted[-1]
        equal(sorted(sent), ["messages", "model", "stream", "stream_options"], "fields of a plain request")
        equal(sent["stream_options"], {"include_usage": True}, "stream_options")
        settings(t, temperature="0.5", top_p="0.9", top_k="40", min_p="0.05", max_tokens="77", seed="123", stop="END\n\\n\\n", system="Be brief.")
        t.page.wait_for_selector("details.system")
        t.page.wait_for_timeout(200)  # the browser writes in its own time
        t.page.reload()
        t.ready()
        t.send("another request")
        sent = mock.posted[-1]
        want = {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "max_tokens": 77, "seed": 123, "stop": ["END", "\n\n"]}
        equal({k: sent.get(k) for k in want}, want, "the settings sent")
        equal(sent["messages"][0], {"role": "system", "content": "Be brief."}, "the system prompt")
        t.page.click("#settings-open")
        t.page.fill("#set-top_p", "7")
        t.page.click("#settings .primary")
        check("from 0 to 1" in t.text("#why-top_p"), "nothing is said about a wrong value")
        t.page.click("#settings-reset")
        t.page.click("#settings .primary")
        t.send("third request")
        check("temperature" not in mock.posted[-1] and "stop" not in mock.posted[-1], "reset settings are sent")


@with_mock
def test_seed(mock):
    """Another answer draws with the next seed, one that is tried again with the same."""
    with Tab(mock.url, may_log="Failed to load resource") as t:
        settings(t, seed="7")
        t.send("busy")
        t.until("the answer", lambda: "Once upon" in answer(t))
        for _ in range(2):
            t.last().get_by_label("Another answer").click()
            t.finished()
        t.send("next")
        equal([p["seed"] for p in mock.posted], [7, 7, 7, 8, 9, 7], "seeds")


@with_mock
def test_bounds(mock):
    """The bounds of the settings are the server's: what it would refuse is refused in the dialog, the last that it takes is taken."""
    values = {"temperature": (-0.1, 2.1, 0, 2), "top_p": (-0.1, 1.1, 0, 1), "min_p": (-0.1, 1.1, 0, 1), "top_k": (-2, 2**31, -1, 2**31 - 1),
              "max_tokens": (0, 4097, 1, 4096), "seed": (0.5, 2**54, 1 - 2**53, 2**53 - 1)}  # two wrong ones, two right ones
    with Tab(mock.url) as t:
        t.until("models", lambda: t.page.locator("#context").is_visible())
        t.page.click("#settings-open")
        for name, value, right in [(name, v, i >= 2) for name, all_four in values.items() for i, v in enumerate(all_four)]:
            t.page.fill("#set-" + name, str(value))
            t.page.press("#set-" + name, "Enter")
            equal(t.page.text_content("#why-" + name) == "", right, f"{name} {value} is taken")
            if right:
                t.page.click("#settings-open")
        for stops, right in (("ä" * 128, True), ("ä" * 129, False), ("\n".join("abcdefghijklmnop"), True), ("\n".join("abcdefghijklmnopq"), False)):
            t.page.fill("#set-stop", stops)
            t.page.click("#settings .primary")
            equal(t.page.text_content("#why-stop") == "", right, f"{len(stops)} characters of stop texts are taken")
            if right:
                t.page.click("#settings-open")
        equal(axe_finds(t.page), [], "axe on a complaint")


@with_mock
def test_click_beside(mock):
    """A click beside the settings closes them, a selection that ends there does not."""
    with Tab(mock.url) as t:
        t.page.click("#settings-open")
        t.page.fill("#system", "Be brief.")
        field = t.page.locator("#system").bounding_box()
        t.page.mouse.move(field["x"] + 40, field["y"] + 15)
        t.page.mouse.down()
        t.page.mouse.move(100, 300, steps=4)
        t.page.mouse.up()
        check(t.page.locator("#settings").is_visible(), "a selection closed the settings")
        t.page.mouse.click(100, 300)
        check(not t.page.locator("#settings").is_visible(), "a click beside them left the settings open")


@with_mock
def test_models(mock):
    """Each model with its state; a choice is sent and remembered, and loads nothing before a message is sent."""
    with Tab(mock.url) as t:
        t.until("models", lambda: t.page.locator("#model option").count() == 3)
        equal(t.page.locator("#model option").all_inner_texts(), ["story", "large (loading, 40 %)", "other (not loaded)"], "models")
        t.page.select_option("#model", "other")
        t.until("no context of another model", lambda: not t.page.locator("#context").is_visible())
        t.page.reload()
        t.ready()
        t.until("the choice", lambda: t.page.input_value("#model") == "other")
        check(not [p for p in mock.queries if "other" in p], f"asked for {mock.queries}")
        t.send("hello")
        equal(mock.posted[-1]["model"], "other", "the model that was asked")
        t.until("its context, now that it is loaded", lambda: t.page.locator("#context").is_visible())
        equal(t.page.locator("#model option").all_inner_texts()[2], "other", "its state")


@with_mock
def test_probabilities(mock):
    """Tokens show what else was likely: under the pointer, and with the arrow keys."""
    with Tab(mock.url) as t:
        t.send("hello")
        check(not t.last().get_by_label("Token probabilities").is_visible(), "a button without probabilities")
        settings(t, logprobs=True)
        t.send("hello again")
        equal([mock.posted[-1].get("logprobs"), mock.posted[-1].get("top_logprobs")], [True, 5], "what was asked")
        t.last().get_by_label("Token probabilities").click()
        check(t.last().locator(".token").count() > 50, "tokens")
        t.last().locator(".token").nth(3).hover()
        check("%" in t.text("#card") and "·other" in t.text("#card"), t.text("#card"))
        t.shot("probabilities")
        equal(axe_finds(t.page), [], "axe on tokens")
        t.last().locator(".tokens").focus()
        t.page.keyboard.press("End")
        check(t.page.get_attribute(".tokens", "aria-activedescendant"), "arrow keys")
        t.last().get_by_label("Token probabilities").click()
        check("Once upon" in answer(t), "the text again")


# ---- what goes wrong ----

@with_mock
def test_errors(mock):
    """Every status has a sentence, with what the server said; the message can be tried again."""
    with Tab(mock.url, may_log="Failed to load resource") as t:
        for status, says in ((400, "refused"), (404, "does not know"), (413, "too large"), (500, "failed"), (418, "status 418")):
            t.send(f"fail {status}")
            trouble = t.last().locator(".trouble").inner_text()
            check(says in trouble and f"You asked for {status}" in trouble, trouble)
            check(t.last().get_by_role("button", name="Try again").is_visible(), "no way to try again")
        t.send("break")
        check("device was lost" in t.last().locator(".trouble").inner_text(), "an error in the middle")
        t.send("cut")
        check("connection" in t.last().locator(".trouble").inner_text().lower(), "a stream that ends early")
        check("Once" in answer(t), "what had come stays")
        t.shot("errors")


@with_mock
def test_busy(mock):
    """429 and 503: the page waits as long as it was told and tries again."""
    with Tab(mock.url, may_log="Failed to load resource") as t:
        t.send("busy?", wait=False)
        t.until("the answer", lambda: "Once upon" in answer(t), 15)
        equal(len(mock.posted), 3, "requests")


def test_restart():
    """A server that goes and comes back: a banner, then the same page goes on."""
    mock = Mock()
    with Tab(mock.url, may_log="Failed to load resource") as t:
        t.send("one")
        port = mock.server_address[1]
        mock.stop()
        t.send("two", wait=False)
        t.page.wait_for_selector("#banner:not([hidden])")
        equal([m[0] for m in t.messages()], ["user", "assistant", "user", "assistant"], "messages without a server")
        mock = Mock(port)
        t.page.wait_for_selector("#banner[hidden]", state="attached")
        t.last().get_by_role("button", name="Try again").click()
        t.finished()
        check("Once upon" in answer(t), "an answer after the restart")
    mock.stop()


def test_key():
    """A server with keys: the page asks, keeps the key in the tab alone, and says when it is wrong."""
    mock = Mock(key="sesame")
    with Tab(mock.url, may_log="Failed to load resource") as t:
        t.page.wait_for_selector("#key[open]")
        t.page.fill("#key-text", "wrong")
        t.page.press("#key-text", "Enter")
        t.page.wait_for_selector("#key[open]")
        check("refused the key" in t.text("#key-why"), t.text("#key-why"))
        equal(axe_finds(t.page), [], "axe on the question for a key")
        t.page.fill("#key-text", "sesame")
        t.page.press("#key-text", "Enter")
        t.until("models", lambda: t.page.locator("#model option").count() == 3)
        t.send("hello")
        check("Once upon" in answer(t), answer(t))
        kept = t.page.evaluate("JSON.stringify({...localStorage})")
        check("sesame" not in kept, "the key is in localStorage")
        t.page.reload()
        t.ready()
        t.send("hello again")
        check("Once upon" in answer(t), "after a reload")
    mock.stop()


def test_key_for_a_message():
    """A message that was refused for want of a key is asked again with the right one."""
    mock = Mock(key="sesame")
    with Tab(mock.url, may_log="Failed to load resource") as t:
        t.page.get_by_role("button", name="Not now").click()
        t.send("hello", wait=False)
        for key in ("wrong", "sesame"):
            t.page.wait_for_selector("#key[open]")
            t.page.fill("#key-text", key)
            t.page.press("#key-text", "Enter")
        t.until("the answer", lambda: "Once upon" in answer(t))
        equal([m["content"] for p in mock.posted for m in p["messages"]], ["hello"], "what was asked with the key")
        equal(t.page.locator("#model option").count(), 3, "models")
    mock.stop()


@with_mock
def test_interrupted(mock):
    """A reload in the middle of an answer keeps what had come, and says that it was cut off."""
    with Tab(mock.url) as t:
        t.send("slow and long", wait=False)
        t.until("some of it", lambda: len(answer(t)) > 60)
        t.page.reload()
        t.ready()
        check(len(answer(t)) > 20 and "cut off" in facts(t), f"{answer(t)!r}: {facts(t)}")


# ---- conversations ----

@with_mock
def test_conversations(mock):
    """Several, found again, renamed, deleted with a way back; keys lead through them."""
    with Tab(mock.url) as t:
        t.send("about foxes")
        t.page.keyboard.press("Alt+KeyN")
        t.send("about owls")
        equal(t.titles(), ["about owls", "about foxes"], "titles")
        t.page.keyboard.press("Alt+ArrowDown")
        equal(t.messages()[0][1], "about foxes", "the other one")
        t.page.fill("#title", "Foxes")
        t.page.press("#title", "Tab")
        t.until("the new title", lambda: "Foxes" in t.titles())
        t.page.get_by_label("Delete Foxes").click()
        equal(t.titles(), ["about owls"], "after deleting")
        t.page.get_by_role("button", name="Undo").click()
        equal(sorted(t.titles()), ["Foxes", "about owls"], "after undoing")
        for code, key, shows in (("Slash", "/", True), ("Digit7", "/", True), ("Slash", ".", True), ("Slash", "-", False), ("Digit7", "7", False)):
            t.page.evaluate("([code, key]) => document.dispatchEvent(new KeyboardEvent('keydown', {code, key, ctrlKey: true}))", [code, key])
            equal(t.page.locator("#shortcuts").is_visible(), shows, f"the list of keys after Ctrl and {key} ({code})")
            t.page.keyboard.press("Escape")
        t.page.reload()
        t.ready()
        equal(sorted(t.titles()), ["Foxes", "about owls"], "after a reload")


@with_mock
def test_drafts(mock):
    """What was typed and not sent is found again in its conversation, in a new one, too."""
    with Tab(mock.url) as t:
        t.send("about owls")
        t.page.fill("#composer-text", "and mice")
        t.page.keyboard.press("Alt+KeyN")
        equal(t.page.input_value("#composer-text"), "", "the box of a new conversation")
        t.page.fill("#composer-text", "about fo")
        t.page.keyboard.press("Alt+KeyN")
        equal(t.page.input_value("#composer-text"), "about fo", "after a new one was asked for once more")
        t.page.get_by_role("button", name="about owls", exact=True).click()
        equal(t.page.input_value("#composer-text"), "and mice", "the box of the old one")
        t.page.click("#new")
        equal(t.page.input_value("#composer-text"), "about fo", "the box of the new one")
        t.send("about foxes")
        t.page.click("#new")
        equal([t.page.input_value("#composer-text"), t.messages()], ["", []], "a new one again")


@with_mock
def test_idea_beside_a_draft(mock):
    """An idea is sent as it is; what stands in the box stays there until it is sent itself."""
    with Tab(mock.url) as t:
        t.page.fill("#composer-text", "half a thought")
        t.page.get_by_role("button", name="What is 7 + 5?").click()
        t.finished()
        equal([t.messages()[0][1], t.page.input_value("#composer-text")], ["What is 7 + 5?", "half a thought"], "what was sent, and the box")
        t.page.press("#composer-text", "Enter")
        t.finished()
        equal([t.messages()[2][1], t.page.input_value("#composer-text")], ["half a thought", ""], "what was sent then, and the box")


@with_mock
def test_system_prompt_taken_back(mock):
    """A conversation in which nothing is left is kept no longer, wherever the browser keeps them."""
    for script in ("", "Object.defineProperty(window, 'indexedDB', {value: undefined});"):
        with Tab(mock.url) as t:
            t.context.add_init_script(script)
            t.page.reload()
            t.ready()
            for text, n in (("Be a fox.", 1), ("", 0)):
                settings(t, system=text)
                t.page.wait_for_timeout(300)  # the browser writes in its own time
                t.page.reload()
                t.ready()
                equal(len(t.titles()), n, f"conversations after the system prompt was {text!r}")
                if n:
                    t.page.click("#list .open")
            equal(t.page.locator("details.system").count(), 0, "system prompts")


@with_mock
def test_system_prompt_taken_back_beside_a_message(mock):
    """A tab that has not heard what another one has written there does not remove it."""
    with Tab(mock.url) as one:
        one.context.add_init_script("window.BroadcastChannel = undefined;")
        one.page.reload()
        one.ready()
        settings(one, system="Be a fox.")
        one.page.wait_for_timeout(300)
        two = one.beside()
        two.page.click("#list .open")
        two.send("hello")
        two.page.wait_for_timeout(300)
        settings(one, system="")
        one.page.wait_for_timeout(300)
        one.page.reload()
        one.ready()
        equal(one.titles(), ["hello"], "conversations after a reload")


@with_mock
def test_title_while_answering(mock):
    """A title that is being typed stays when the answer ends, and goes to its own conversation."""
    with Tab(mock.url) as t:
        t.send("about owls")
        t.page.keyboard.press("Alt+KeyN")
        t.send("slow foxes", wait=False)
        t.page.type("#title", "My fo")
        t.finished()
        t.page.type("#title", "xes")
        equal(t.page.input_value("#title"), "My foxes", "the title after the answer")
        t.page.keyboard.press("Alt+ArrowDown")
        equal(t.titles(), ["My foxes", "about owls"], "titles")
        equal(t.page.input_value("#title"), "", "the title of the other one")


@with_mock
def test_deleted_while_answering(mock):
    """A conversation that is deleted while an answer is written, or waited for, does not come back by itself."""
    with Tab(mock.url, may_log="Failed to load resource") as t:
        for text, sign in (("slow and long", "article.last[aria-busy=true]"), ("fail 503", "article.last .trouble:has-text('again in')")):
            n_posted = len(mock.posted) + 1
            t.send(text, wait=False)
            t.page.wait_for_selector(sign)
            t.page.get_by_label("Delete " + text).click()
            t.page.wait_for_timeout(2500)  # longer than the server said to wait
            equal([t.titles(), len(mock.posted)], [[], n_posted], f"conversations and requests after {text!r} was deleted")
        t.page.get_by_role("button", name="Undo").click()
        check(t.last().get_by_role("button", name="Try again", exact=True).is_visible(), "no way to try again after undoing")
        t.page.get_by_label("Delete fail 503").click()
        t.page.wait_for_timeout(200)
        t.page.reload()
        t.ready()
        equal(t.titles(), [], "after a reload")


@with_mock
def test_two_at_a_time(mock):
    """An answer goes on while another conversation is read."""
    with Tab(mock.url) as t:
        t.send("slow fox", wait=False)
        t.until("a piece", lambda: len(answer(t)) > 10)
        t.page.keyboard.press("Alt+KeyN")
        t.send("quick owl")
        check("Once" in answer(t), "the second answer")
        t.until("the first is done", lambda: t.page.locator(".busy").count() == 0)
        t.page.get_by_role("button", name="slow fox", exact=True).click()
        check("did not move" in answer(t), "the whole first answer")


@with_mock
def test_two_tabs(mock):
    """Two tabs write in one conversation at the same time: nothing is lost, in neither tab nor after a reload."""
    with Tab(mock.url) as one:
        one.send("first")
        two = one.beside()
        one.send("slow and long", wait=False)
        two.until("the other tab's answer", lambda: len(two.messages()) == 4 and len(answer(two)) > 20)
        two.send("quick")
        two.last().get_by_label("Another answer").click()
        two.finished()
        one.until("the other tab's message", lambda: len(one.messages()) == 6)
        one.page.keyboard.press("Escape")
        one.finished()
        one.until("the other tab's two answers", lambda: one.last().locator(".branch span").inner_text() == "1/2")
        whole = one.messages()[:5]
        two.until("the whole answer of the first tab", lambda: two.messages()[:5] == whole)
        one.page.wait_for_timeout(300)
        for tab in (one, two):
            tab.page.reload()
            tab.ready()
            equal(tab.messages()[:5], whole, "after a reload")
            check(tab.last().locator(".branch span").inner_text() in ("1/2", "2/2"), "an answer is lost")


@with_mock
def test_two_tabs_and_the_end(mock):
    """An answer without an end is cut off only where no tab writes it any more."""
    other = "being written in another tab"
    with Tab(mock.url) as one:
        one.send("slow and long", wait=False)
        one.until("some of it", lambda: len(answer(one)) > 20)
        two = one.beside()
        two.until("that another tab writes it", lambda: other in facts(two))
        check(other not in facts(one), facts(one))
        one.page.keyboard.press("Escape")
        two.until("its end", lambda: facts(two).endswith("stopped"))
        one.send("slow and long", wait=False)
        two.until("that another tab writes the next one", lambda: len(two.messages()) == 4 and len(answer(two)) > 20 and other in facts(two))
        one.page.close()
        two.until("that it was cut off", lambda: "cut off" in facts(two))


@with_mock
def test_two_tabs_and_an_edit(mock):
    """What another tab does leaves an edit alone; a conversation that it deletes is not answered on."""
    with Tab(mock.url) as one:
        one.send("first")
        two = one.beside()
        two.page.get_by_label("Edit this message").click()
        two.page.fill(".edit textarea", "half of a")
        one.send("second")
        two.until("the other tab's message", lambda: len(two.messages()) == 4)
        equal(two.page.input_value(".edit textarea"), "half of a", "the text of the edit")
        equal(two.page.evaluate("document.activeElement.getAttribute('aria-label')"), "Your message", "what has the focus")
        one.send("slow and long", wait=False)
        one.running()
        two.page.get_by_label("Delete first").click()
        one.finished()
        one.page.wait_for_timeout(1000)
        equal([one.titles(), two.titles()], [[], []], "conversations after it was deleted")
        one.page.reload()
        one.ready()
        equal(one.titles(), [], "after a reload")


@with_mock
def test_two_tabs_and_the_system_prompt(mock):
    """Settings that are closed without a change leave alone what another tab has changed meanwhile."""
    with Tab(mock.url) as one:
        one.send("first")
        two = one.beside()
        two.page.click("#settings-open")
        settings(one, system="Be a fox.")
        one.page.wait_for_timeout(1500)
        two.page.keyboard.press("Escape")
        one.page.wait_for_timeout(1500)
        for tab in (one, two):
            tab.page.click("#settings-open")
            equal(tab.page.input_value("#system"), "Be a fox.", "the system prompt")
            tab.page.keyboard.press("Escape")


@with_mock
def test_export_import(mock):
    """What was exported comes back in another browser: every branch, number and receipt."""
    with Tab(mock.url) as t:
        settings(t, logprobs=True, system="Be a fox.")
        t.send("one")
        t.last().get_by_label("Another answer").click()
        t.finished()
        t.page.wait_for_selector("article.last .receipt:not([hidden])")
        with t.page.expect_download() as d:
            t.page.click("#export-all")
        path = temp("exported.json")
        d.value.save_as(path)
        before = t.messages()
    with Tab(mock.url) as t:
        t.page.set_input_files("#file", path)
        t.until("the conversation", lambda: t.messages() == before)
        equal(t.last().locator(".branch span").inner_text(), "2/2", "branches")
        with t.page.expect_download() as d:
            t.page.click("#export")
        again = temp("again.json")
        d.value.save_as(again)
    one, two = [strip(json.load(open(p, encoding="utf-8"))) for p in (path, again)]
    equal(two, one, "exported, imported and exported again")


def strip(exported):
    """Without what is new in each export."""
    del exported["exported"]
    for c in exported["conversations"]:
        for part in [c, *c["messages"]]:
            del part["id"]
    return exported


@with_mock
def test_import_of_strange_files(mock):
    """No file breaks the page: it says what is wrong, or takes what it can."""
    deep = {"format": "bitnet-conversations", "version": 1, "conversations": [
        {"messages": [{"parent": i - 1, "role": "user" if i % 2 == 0 else "assistant", "text": f"m{i}"} for i in range(3000)]}]}
    circle = {"format": "bitnet-conversations", "version": 1, "conversations": [{"title": {"a": 1}, "pick": -5, "messages": [
        {"parent": 3, "role": "user", "text": "<img src=x onerror=window.hacked=1>"}, {"parent": "__proto__", "role": "x", "text": 7},
        None, {"parent": 0, "role": "assistant", "text": "ok", "numbers": {"made": "x"}, "tokens": [None, ["a"]], "receipt": {"id": "r", "text": "[{"}}]}]}
    other = {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": [{"type": "text", "text": "parts"}]}, {"role": "assistant", "content": "yes"}]}
    roles = {"messages": [{"role": r, "content": t} for r, t in (("system", "S"), ("developer", "D"), ("user", "hi"), ("tool", "x"), ("assistant", "yes"), ("system", "late"))]}
    with Tab(mock.url) as t:
        t.page.evaluate("window.hacked = 0")
        for name, data, says in (("not.json", "{", "not JSON"), ("list.json", "[]", "no conversations"), ("null.json", "null", "no conversations"),
                                 ("new.json", '{"format":"bitnet-conversations","version":9,"conversations":[]}', "version 9"),
                                 ("none.json", '{"messages":[]}', "holds no messages"),
                                 ("tools.json", '{"messages":[{"role":"tool","content":"x"}]}', "Left out: 1 message")):
            t.page.set_input_files("#file", write(name, data))
            t.until(f"{name}: {says}", lambda s=says: s in t.page.text_content("#toast"))
        for name, data, first in (("circle.json", circle, "<img src=x onerror=window.hacked=1>"), ("other.json", other, "parts"), ("deep.json", deep, "m0")):
            t.page.set_input_files("#file", write(name, json.dumps(data)))
            t.until(name, lambda: "imported" in t.page.text_content("#toast"))
            t.until(name, lambda f=first: t.messages()[0][1] == f)
            t.page.evaluate("document.getElementById('toast').textContent = ''")
        equal(len(t.messages()), 3000, "messages of a long conversation")
        t.page.set_input_files("#file", write("roles.json", json.dumps(roles)))
        t.until("roles", lambda: "1 conversation imported. Left out: 2 messages" in t.page.text_content("#toast"))
        equal([t.page.text_content(".system p"), t.messages()], ["S\n\nD", [["user", "hi"], ["assistant", "yes"]]], "messages of all roles")
        t.page.reload()
        t.ready()
        equal(len(t.titles()), 4, "conversations after a reload")
        equal(t.page.evaluate("window.hacked"), None, "something ran")


@with_mock
def test_import_of_strange_ends(mock):
    """How an answer ended is a word of the file, whatever every object is called by."""
    for word, shows in (("constructor", "constructor"), ("__proto__", "__proto__"), ("toString", "toString"), ("lost", "cut off"), ("stop", "")):
        with Tab(mock.url) as t:
            t.page.set_input_files("#file", write("ends.json", json.dumps({"format": "bitnet-conversations", "version": 1, "conversations": [
                {"messages": [{"parent": -1, "role": "user", "text": "hello"}, {"parent": 0, "role": "assistant", "text": "yes", "ended": word}]}]})))
            t.until("the conversation", lambda t=t: len(t.messages()) == 2)
            equal(facts(t), shows, f"the facts of an answer that ended with {word}")


STRANGE_TIMES = ("9e12", "8.64e15", "2**53 - 1", "1e308", "NaN", "-5", "'soon'", "undefined")
KEEP = """(time) => new Promise((done) => {
    const message = (parent, role, more) => ({id: role, parent, role, text: "", pick: 0, created: time, ...more});
    const failed = message(0, "assistant", {ended: "failed", trouble: "busy", written: time});
    const kept = {id: "strange", title: "old", system: "", created: time, updated: time, pick: 0, messages: [message(-1, "user", {text: "hello"}), failed]};
    indexedDB.open("bitnet-chat", 1).onsuccess = (e) => {
        const transaction = e.target.result.transaction("conversations", "readwrite");
        transaction.objectStore("conversations").put(kept);
        transaction.oncomplete = done;
    };
})"""


@with_mock
def test_strange_times(mock):
    """A conversation that was kept with times ahead, or with what is no time: what is done in it holds, and comes to the other tab."""
    for value in STRANGE_TIMES:
        with Tab(mock.url) as one:
            one.page.evaluate(f"({KEEP})({value})")
            one.page.goto(mock.url + "#strange")
            one.page.reload()
            one.ready()
            two = one.beside()
            one.last().get_by_role("button", name="Try again").click()
            one.finished()
            two.until(f"{value}: the other tab's answer", lambda t=two, o=one: "did not move" in answer(t) and t.messages() == o.messages())
            for tab, other, title in ((one, two, "first"), (two, one, "second"), (one, two, "third")):
                tab.page.fill("#title", title)
                tab.page.press("#title", "Tab")
                other.until(f"{value}: the title {title}", lambda o=other, w=title: o.titles() == [w])
            one.page.wait_for_timeout(200)
            one.page.reload()
            one.ready()
            equal([one.titles(), answer(one)], [["third"], answer(two)], f"{value}: after a reload")


def test_no_storage():
    """A browser that keeps nothing, or whose storage is full: the page talks all the same and says so."""
    mock = Mock()
    for what, script in (
            ("nothing", "Object.defineProperty(window, 'indexedDB', {value: undefined}); Object.defineProperty(window, 'localStorage', {get() { throw new Error('no'); }});"),
            ("full", "Object.defineProperty(window, 'indexedDB', {value: undefined}); Storage.prototype.setItem = function(k, v) { if (v.length > 50) throw new DOMException('full', 'QuotaExceededError'); };")):
        context = browser().new_context()
        context.add_init_script(script)
        page = context.new_page()
        page.goto(mock.url)
        page.wait_for_selector("#send[data-icon]")
        page.fill("#composer-text", "hello")
        page.press("#composer-text", "Enter")
        page.wait_for_selector("article.assistant .facts:has-text('first after')")
        check("Export" in page.text_content("#toast"), f"{what}: {page.text_content('#toast')!r}")
        context.close()
    mock.stop()


# ---- how it looks ----

@with_mock
def test_markdown(mock):
    """Headings, lists, tables, code become elements."""
    with Tab(mock.url) as t:
        t.send("markdown")
        body = t.last().locator(".body")
        for selector, n in (("h3", 1), ("h4", 1), ("em", 1), ("strong", 1), ("del", 1), ("p code", 1), ("ol > li", 3), ("ol ul ul li", 1),
                            ("blockquote", 1), ("pre code", 1), ("table tbody tr", 2), ("td.right", 2), ("hr", 1), ("a", 2)):
            equal(body.locator(selector).count(), n, selector)
        equal(body.locator("a").first.get_attribute("href"), "https://example.org/a_(b)", "a link with brackets")
        equal(body.locator("a").last.get_attribute("href"), "https://example.org/end", "a link at the end of a sentence")


@with_mock
def test_time_of_hostile_markdown(mock):
    """No text takes long: each of these is made to be slow for a careless renderer."""
    n = 200000
    texts = {"stars": "*" * n, "stars and letters": "*a" * (n // 2), "mixed": "*a _b " * (n // 6), "nested": "*_" * (n // 4) + "x" + "_*" * (n // 4),
             "nested words": "*a " * (n // 6) + "x" + " b*" * (n // 6),
             "brackets": "[" * n, "links": "[a](" * (n // 4), "closed": "[](" * (n // 3) + ")" * 1000, "pictures": "![" * (n // 4) + "a" + "](https://x.y)" * (n // 26),
             "ticks": "".join("`" * (i % 300) + "a" for i in range(1, 400)), "quotes": ">" * n, "deep quotes": "> " * (n // 2) + "x",
             "lists": "\n".join("  " * (i % 40) + "- a" for i in range(n // 40)), "deep list": "- " * (n // 2), "table": "|a" * 100 + "\n" + "|-" * 100 + "\n" + "|\n" * (n // 2),
             "rule": "-" + " " * n + "x", "table rule": "a|b\n-|-" + " " * 390 + "x\n" * 100, "urls": "http://" * (n // 7), "angles": "<http://a" * (n // 9),
             "spaces": " " * n + "\nx", "entities": "&" * n, "escapes": "\\*" * (n // 2), "lines": "a\n" * (n // 2), "fences": "```\n" * (n // 16),
             "headings": "# " + "#" * n, "heading spaces": "# a" + " " * n + "b", "brackets in urls": "http://a" + ")" * n, "combining": "a" + "\u0301" * n,
             "urls in a bracket": "[" + "http://" * (n // 7), "no urls": ")http://%" * (n // 9), "fence and a tick": ("```" + " " * 19000 + "`\n") * (n // 19005),
             "tildes and a tick": ("~" * 19000 + "`\n") * (n // 19002), "table rules": ("a|b\n-|-" + " " * 380 + "x\n") * (n // 390)}
    with Tab(mock.url) as t:
        for name, text in texts.items():
            took, depth = render(t.page, text)
            check(took < 3000, f"{name}: {took:.0f} ms for {len(text)} characters")
            check(depth < 60, f"{name}: {depth} elements in one another")


PIECES = ("*", "_", "~~", "`", "` ", "[", "![a", "](", "](x)", "](https://x.y)", "<http://a", " http://%", "\\", "\n", " ", "\u2028", "|", "- ", "> ", "# ", "~~~")


@with_mock
def test_time_of_repeated_markdown(mock):
    """Any two pieces of markdown, one after the other, beside one another and around one another: the time is in proportion to the text."""
    n = 100000
    with Tab(mock.url) as t:
        for one, two in [(one, two) for one in PIECES for two in PIECES]:
            times = n // len(one + two)
            for text in (one * times + two * times, (one + two) * times, one + two * (n // len(two)) + one):
                quick = any(render(t.page, text)[0] < 1500 for _ in range(3))  # the machine may be busy
                check(quick, f"{one!r} and {two!r}: more than 1.5 s for {len(text)} characters that begin with {text[:40]!r}")


def test_phone():
    """At the width of a phone nothing sticks out, and conversations come in from the side."""
    mock = Mock()
    for width in (360, 320):
        with Tab(mock.url, width=width, height=740, has_touch=True, is_mobile=True) as t:
            t.shot(f"phone-empty-{width}")
            t.page.fill("#composer-text", "markdown, please, " + "w" * 200)
            t.page.click("#send")
            t.finished()
            t.page.wait_for_selector("article.last .receipt:not([hidden])")
            equal(t.sideways(), 0, f"pixels beyond {width}")
            equal(t.page.evaluate("document.querySelector('#scroll').scrollWidth - document.querySelector('#scroll').clientWidth"), 0, "the conversation")
            t.shot(f"phone-{width}")
            equal(axe_finds(t.page), [], "axe on a phone")
            t.page.click("#side-open")
            t.page.wait_for_timeout(300)
            t.shot(f"phone-side-{width}")
            equal(axe_finds(t.page), [], "axe on the conversations of a phone")
            t.page.click("#side-close")
            t.page.click("#settings-open")
            t.shot(f"phone-settings-{width}")
            equal(t.sideways(), 0, f"pixels beyond {width} with settings")
    mock.stop()


def test_themes():
    """The page follows the system, can be told otherwise, and remembers."""
    mock = Mock()
    paper = "getComputedStyle(document.body).backgroundColor"
    for scheme in ("light", "dark"):
        with Tab(mock.url, scheme=scheme) as t:
            t.shot(f"empty-{scheme}")
            own = t.page.evaluate(paper)
            t.send("Tell me a story about a fox")
            t.send("markdown")
            t.page.wait_for_selector("article.last .receipt:not([hidden])")
            t.shot(f"conversation-{scheme}")
            t.page.click("#settings-open")
            t.page.wait_for_timeout(100)
            t.shot(f"settings-{scheme}")
            t.page.keyboard.press("Escape")
            t.page.select_option("#theme", "dark" if scheme == "light" else "light")
            other = t.page.evaluate(paper)
            check(own != other, f"{own} in both themes")
            t.page.reload()
            t.ready()
            equal(t.page.evaluate(paper), other, "the theme after a reload")
    mock.stop()


@with_mock
def test_below_a_prefix(mock):
    """Behind a proxy that serves other things, too, the page asks for nothing outside of its prefix."""
    with Tab(mock.url + "below/a/prefix/") as t:
        asked = []
        t.page.on("request", lambda r: asked.append(r.url))
        t.until("models", lambda: t.page.locator("#model option").count() == 3)
        t.send("hello")
        check("Once upon" in answer(t), answer(t))
        t.page.wait_for_selector("article.last .receipt:not([hidden])")
        t.page.reload()
        t.ready()
        equal(len(t.messages()), 2, "after a reload")
        equal([u for u in asked if "/below/a/prefix/" not in u and not u.startswith("blob:")], [], "asked for elsewhere")


@with_mock
def test_keyboard_alone(mock):
    """Everything can be reached with Tab, and focus is never lost."""
    with Tab(mock.url) as t:
        t.send("hello")
        seen = set()
        for _ in range(60):
            t.page.keyboard.press("Tab")
            seen.add(t.page.evaluate("document.activeElement.getAttribute('aria-label') || document.activeElement.id || document.activeElement.textContent.trim()"))
        for name in ("new", "import", "export-all", "theme", "hello", "Title of the conversation", "model", "Settings", "Copy", "Edit this message",
                     "Another answer", "composer-text"):
            check(name in seen, f"{name} is not reached; reached: {sorted(seen)}")


@with_mock
def test_skip_link(mock):
    """To the message box by the first key, and the address still names the conversation."""
    with Tab(mock.url) as t:
        t.send("hello")
        before = t.page.url
        t.page.locator(".skip").focus()
        t.page.keyboard.press("Enter")
        equal([t.page.evaluate("document.activeElement.id"), t.page.url], ["composer-text", before], "focus and address")
        t.page.reload()
        t.ready()
        equal(t.messages()[0][1], "hello", "after a reload")


ALT_KEY = """([where, code, key]) => !document.querySelector(where).dispatchEvent(
    new KeyboardEvent("keydown", {code, key, altKey: true, bubbles: true, cancelable: true}))"""


@with_mock
def test_signs_of_a_mac(mock):
    """Option and a letter write a sign into a field; the same keys are shortcuts elsewhere, and where they give their own letter."""
    with Tab(mock.url) as t:
        t.send("hello")
        for where in ("#composer-text", "#title"):
            for code, key in (("KeyN", "Dead"), ("KeyR", "\u00ae"), ("KeyM", "\u00b5"), ("KeyS", "\u00df"), ("KeyS", "\u00cd")):
                equal(t.page.evaluate(ALT_KEY, [where, code, key]), False, f"{key} taken from {where}")
        t.finished()
        equal([len(t.messages()), t.page.locator("#settings").is_visible()], [2, False], "messages, and the settings")
        for where, key in (("#composer-text", "s"), ("#composer-text", "S"), ("#composer-text", "\u044b"), ("#new", "\u00df")):
            equal(t.page.evaluate(ALT_KEY, [where, "KeyS", key]), True, f"Alt and {key} in {where}")
            equal(t.page.locator("#settings").is_visible(), True, f"the settings after {key} in {where}")
            t.page.keyboard.press("Escape")


FOCUS = "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent.trim()"


@with_mock
def test_focus_in_the_list(mock):
    """Who chooses a conversation by a key stays at it, also while answers begin and end."""
    with Tab(mock.url) as t:
        t.send("about owls")
        t.page.keyboard.press("Alt+KeyN")
        t.send("slow foxes", wait=False)
        t.page.locator("#list .open", has_text="about owls").focus()
        t.page.keyboard.press("Enter")
        equal(t.messages()[0][1], "about owls", "the chosen conversation")
        equal(t.page.evaluate(FOCUS), "about owls", "focus after Enter")
        t.page.keyboard.press("Tab")
        t.until("the other answer is done", lambda: t.page.locator(".busy").count() == 0)
        equal(t.page.evaluate(FOCUS), "Delete about owls", "focus after an answer")


@with_mock
def test_focus_of_a_phone(mock):
    """The conversations of a narrow screen: what is behind them is out of reach, and focus comes back to their button."""
    with Tab(mock.url, width=390, height=740) as t:
        t.send("hello")
        t.page.click("#side-open")
        for _ in range(20):
            t.page.keyboard.press("Tab")
            check(not t.page.locator(".top :focus, #scroll:focus, #scroll :focus, .bottom :focus, .skip:focus").count(), "what is behind is reached with Tab")
        t.page.focus("#new")
        t.page.keyboard.press("Escape")
        equal(t.page.evaluate(FOCUS), "Show conversations", "focus after Escape")
        t.page.click("#side-open")
        t.page.locator("#list .open").focus()
        t.page.keyboard.press("Enter")
        equal(t.page.evaluate(FOCUS), "Show conversations", "focus after a choice")
        t.page.click("#side-open")
        t.page.get_by_label("Delete hello").click()
        t.page.get_by_role("button", name="Undo").click()
        equal(t.titles(), ["hello"], "after undoing over the list")
        t.page.set_viewport_size({"width": 1280, "height": 860})
        t.page.click("#composer-text")
        equal(t.page.locator("[inert]").count(), 0, "elements out of reach on a wide screen")


@with_mock
def test_policy(mock):
    """The policy of server/native/web.h holds in the browser: no HTML can be made of a text, nothing comes from elsewhere."""
    with Tab(mock.url, may_log="logged") as t:
        for what, code in (("HTML of a text", "document.createElement('div').innerHTML = '<b>x</b>'"),
                           ("a picture from elsewhere", "document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.2:1/x.png'}))"),
                           ("a request to elsewhere", "fetch('http://127.0.0.2:1/').catch(() => {})")):
            blocked = t.page.evaluate("""() => new Promise(done => {
                document.addEventListener("securitypolicyviolation", () => done(true), {once: true});
                setTimeout(() => done(false), 2000);
                try { CODE; } catch { done(true); }
            })""".replace("CODE", code))
            check(blocked, f"{what} is let through")


if __name__ == "__main__":
    main(globals())
