/* chat_probe.c - a conversation with one call of a tool, in the forms that templates expect, until
 * the template shows the call. Then the text around it tells how the model was taught to call. */
#include "text/chat_probe.h"

#include "jinja/jinja.h"

/* Words that no template has in its text. */
#define NAME  "f71930264"
#define KEY   "k71930264"
#define VALUE "v71930264"

#define TOOLS                                                                                      \
    "[{\"type\":\"function\",\"function\":{\"name\":\"t\",\"description\":\"d\",\"parameters\":{"  \
    "\"type\":\"object\",\"properties\":{\"p\":{\"type\":\"string\",\"description\":\"d\"}},"      \
    "\"required\":[\"p\"]}}}]"

typedef enum shown {
    HIDDEN,
    NAMED,   /* the function's name alone */
    QUOTED,  /* the arguments as Python prints an object, which is no JSON */
    COMPLETE /* the call as it is */
} shown;

/* A form of the conversation; the first is the one that transformers documents. */
typedef struct call_form {
    bool text_arguments, null_content;
} call_form;

static const call_form forms[] = {{false, false}, {true, false}, {false, true}, {true, true}};

/* ---- the conversation ---- */

static void write_content(const bnet_chat_own *o, const char *text, bnet_str *out)
{
    bnet_str_addf(out, o->typed ? "[{\"type\":\"text\",\"text\":\"%s\"}]" : "\"%s\"", text);
}

static void write_values(const bnet_chat_own *o, call_form form, bool answer, bnet_str *out)
{
    bnet_str_puts(out, "{\"messages\":[{\"role\":\"user\",\"content\":");
    write_content(o, "q", out);
    bnet_str_puts(out, "},{\"role\":\"assistant\",\"content\":");
    if (form.null_content)
        bnet_str_puts(out, "null");
    else
        write_content(o, "", out);
    bnet_str_addf(out,
                  ",\"tool_calls\":[{\"id\":\"a71930264\",\"type\":\"function\",\"function\":{"
                  "\"name\":\"" NAME "\",\"arguments\":%s}}]}",
                  form.text_arguments ? "\"{\\\"" KEY "\\\": \\\"" VALUE "\\\"}\""
                                      : "{\"" KEY "\":\"" VALUE "\"}");
    if (answer) {
        bnet_str_puts(out, ",{\"role\":\"tool\",\"tool_call_id\":\"a71930264\",\"name\":\"t\","
                           "\"content\":");
        write_content(o, "r", out);
        bnet_str_putc(out, '}');
    }
    bnet_str_puts(out, "],\"tools\":" TOOLS ",\"documents\":null,\"add_generation_prompt\":false,"
                       "\"bos_token\":\"\",\"eos_token\":\"\"}");
}

static shown shown_in(const bnet_str *text)
{
    const char *s = text->data ? text->data : "";
    if (!strstr(s, NAME))
        return HIDDEN;
    if (!strstr(s, KEY) || !strstr(s, VALUE))
        return NAMED;
    return strstr(s, "'" KEY "'") ? QUOTED : COMPLETE;
}

/* What the template writes of the call in this form. Whatever it refuses is hidden. */
static bitnet_status try_form(const bnet_chat_own *o, call_form form, bool answer, bnet_str *text)
{
    const bnet_jinja_limits limits = {.steps = 200000, .memory = 4 << 20, .output = 1 << 20};
    bnet_str values = {0};
    write_values(o, form, answer, &values);
    bitnet_status status =
        values.failed
            ? BITNET_MEMORY
            : bnet_jinja_render(o->source, (bnet_span){values.data, values.n}, &limits, text, NULL);
    bnet_str_free(&values);
    return status;
}

/* ---- the style ---- */

static bool has(const bnet_chat_own *o, const char *part)
{
    return memmem(o->source.data, o->source.n, part, strlen(part)) != NULL;
}

/* By what stands in a template that shows no call. */
static bitnet_tool_style suggested(const bnet_chat_own *o)
{
    if (has(o, "[TOOL_CALLS]"))
        return has(o, "[ARGS]") ? BITNET_TOOLS_OTHER : BITNET_TOOLS_MISTRAL;
    if (has(o, "<tool_call>"))
        return has(o, "<arg_key>")    ? BITNET_TOOLS_OTHER
               : has(o, "<function=") ? BITNET_TOOLS_XML
                                      : BITNET_TOOLS_HERMES;
    return has(o, "{\"name\": ") && has(o, "\"parameters\": ") ? BITNET_TOOLS_LLAMA3
                                                               : BITNET_TOOLS_OTHER;
}

static const char *behind_blanks(const char *s)
{
    return s + strspn(s, " \t\r\n");
}

/* What follows the last `mark` before the name, blanks aside, if no `end` closes it before the name
 * comes; else NULL. */
static const char *behind_mark(const char *text, const char *name, const char *mark,
                               const char *end)
{
    const char *last = NULL;
    for (const char *at = text; (at = strstr(at, mark)) != NULL && at < name; at++)
        last = at + strlen(mark);
    const char *closed = last ? strstr(last, end) : NULL;
    return last && !(closed && closed < name) ? behind_blanks(last) : NULL;
}

static bool is_json(const char *call)
{
    return strstr(call, "\"name\"") && strstr(call, "\"arguments\"");
}

/* The call is {"name": "...", "parameters": ... */
static bool is_llama3(const char *text, const char *name)
{
    static const char front[] = "{\"name\": \"", back[] = "\", \"parameters\": ";
    size_t n = sizeof front - 1;
    return (size_t)(name - text) >= n && memcmp(name - n, front, n) == 0 &&
           strncmp(name + strlen(NAME), back, sizeof back - 1) == 0;
}

/* By what stands around the call in a text that shows it. */
static bitnet_tool_style style_in(const char *text)
{
    const char *name = strstr(text, NAME);
    const char *list = behind_mark(text, name, "[TOOL_CALLS]", "[/INST]");
    const char *call = behind_mark(text, name, "<tool_call>", "</tool_call>");
    if (list)
        return *list == '[' && is_json(list) ? BITNET_TOOLS_MISTRAL : BITNET_TOOLS_OTHER;
    if (call && *call == '{')
        return is_json(call) ? BITNET_TOOLS_HERMES : BITNET_TOOLS_OTHER;
    if (call)
        return strncmp(call, "<function=" NAME, strlen("<function=" NAME)) == 0
                   ? BITNET_TOOLS_XML
                   : BITNET_TOOLS_OTHER;
    return is_llama3(text, name) ? BITNET_TOOLS_LLAMA3 : BITNET_TOOLS_OTHER;
}

/* ---- all of it ---- */

/* Keeps the text in *best if it shows more of the call than that does. */
static void keep_better(bnet_chat_own *o, call_form form, bnet_str *text, bnet_str *best)
{
    if (shown_in(text) > shown_in(best)) {
        bnet_str other = *best;
        *best = *text;
        *text = other;
        o->text_arguments = form.text_arguments;
        o->null_content = form.null_content;
    }
    bnet_str_free(text);
}

/* The tool's answer follows, as it does in a conversation, unless the template has no place for it.
 */
static bitnet_status try_all(bnet_chat_own *o, bnet_str *best)
{
    for (int answer = 1; answer >= 0 && shown_in(best) == HIDDEN; answer--)
        for (size_t i = 0; i < BNET_COUNT(forms) && shown_in(best) != COMPLETE; i++) {
            bnet_str text = {0};
            bitnet_status status = try_form(o, forms[i], answer, &text);
            keep_better(o, forms[i], &text, best);
            if (status == BITNET_MEMORY)
                return status;
        }
    return BITNET_OK;
}

bitnet_status bnet_chat_probe(bnet_chat_own *o, bitnet_error *err)
{
    bnet_str best = {0};
    bitnet_status status = has(o, "tool_calls") ? try_all(o, &best) : BITNET_OK;
    if (status != BITNET_OK)
        bnet_no_memory(err, "chat template");
    else if (!o->tools)
        o->style = BITNET_TOOLS_NONE;
    else
        o->style = shown_in(&best) >= QUOTED ? style_in(best.data) : suggested(o);
    bnet_str_free(&best);
    return status;
}
