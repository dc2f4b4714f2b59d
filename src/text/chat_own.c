/* chat_own.c - opening a file's own chat template: can it be rendered, and what does it offer?
 *
 * A question is rendered once. A template that fails there would fail every conversation, so
 * another form is chosen in its place, and the reason is kept. What else it is asked is in
 * chat_probe.h. */
#include "text/chat_own.h"

#include <stdio.h>

#include "jinja/jinja.h"
#include "text/chat_probe.h"

enum { LONGEST_SOURCE = 1 << 20 };

#define QUESTION "71930264" /* which no template has in its text */

static bool has(const bnet_chat_own *o, const char *part)
{
    return memmem(o->source.data, o->source.n, part, strlen(part)) != NULL;
}

/* Renders one question, its content as given in JSON. *answered: the text has it. */
static bitnet_status ask(const bnet_chat_own *o, const char *content, bool *answered,
                         bitnet_error *err)
{
    const bnet_jinja_limits limits = {.steps = 200000, .memory = 4 << 20, .output = 1 << 20};
    bnet_str values = {0}, text = {0};
    bnet_str_addf(&values,
                  "{\"messages\":[{\"role\":\"user\",\"content\":%s}],\"tools\":null,"
                  "\"documents\":null,\"add_generation_prompt\":true,\"bos_token\":\"\","
                  "\"eos_token\":\"\"}",
                  content);
    bitnet_status status =
        values.failed
            ? bnet_no_memory(err, "chat template")
            : bnet_jinja_render(o->source, (bnet_span){values.data, values.n}, &limits, &text, err);
    *answered = text.data && strstr(text.data, QUESTION);
    bnet_str_free(&values);
    bnet_str_free(&text);
    return status;
}

static bitnet_status try_out(bnet_chat_own *o, bitnet_error *err)
{
    bitnet_error why = {0};
    bool answered = false;
    bitnet_status status = ask(o, "\"" QUESTION "\"", &answered, &why);
    if (status != BITNET_MEMORY && !answered) {
        bitnet_error other = {0};
        bitnet_status typed =
            ask(o, "[{\"type\":\"text\",\"text\":\"" QUESTION "\"}]", &o->typed, &other);
        status = typed == BITNET_MEMORY || o->typed ? typed : status;
    }
    if (status == BITNET_MEMORY)
        return bnet_no_memory(err, "chat template");
    o->usable = status == BITNET_ARGUMENT || answered || o->typed;
    if (o->usable)
        return BITNET_OK;
    const char *line = strstr(why.message, "line "); /* whose line is said by who tells it */
    snprintf(o->problem, sizeof o->problem, "%.*s", (int)sizeof o->problem - 1,
             status == BITNET_OK ? "it does not write a user's message"
             : line              ? line
                                 : why.message);
    return BITNET_OK;
}

bitnet_status bnet_chat_own_open(const bnet_tokenizer *t, bnet_span source, bnet_chat_own **out,
                                 bitnet_error *err)
{
    *out = NULL;
    if (source.n == 0)
        return BITNET_OK;
    bnet_chat_own *o = bnet_calloc(1, sizeof *o);
    if (!o)
        return bnet_no_memory(err, "chat template");
    o->t = t;
    o->source = source;
    o->tools = has(o, "tools");
    o->thinking = has(o, "<think>") || has(o, "enable_thinking");
    bitnet_status status = BITNET_OK;
    if (source.n > LONGEST_SOURCE)
        snprintf(o->problem, sizeof o->problem, "it has %zu bytes, more than %d", source.n,
                 LONGEST_SOURCE);
    else
        status = try_out(o, err);
    if (status == BITNET_OK && o->usable)
        status = bnet_chat_probe(o, err);
    if (status == BITNET_OK && o->usable)
        status = bnet_guard_open(&o->guard, t, source, err);
    if (status == BITNET_OK)
        *out = o;
    else
        bnet_chat_own_close(o);
    return status;
}

void bnet_chat_own_close(bnet_chat_own *o)
{
    if (!o)
        return;
    bnet_guard_close(&o->guard);
    bnet_free(o);
}

bitnet_status bnet_chat_own_render(const bnet_chat_own *o, bnet_span values, bnet_str *out,
                                   bitnet_error *err)
{
    bnet_str written = {0};
    bitnet_status status = bnet_jinja_render(o->source, values, NULL, &written, err);
    if (status == BITNET_OK)
        status = bnet_guard_reveal(&o->guard, (bnet_span){written.data, written.n}, out, err);
    else if (err)
        bnet_guard_reveal_message(&o->guard, err->message);
    bnet_str_free(&written);
    return status;
}
