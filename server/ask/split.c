/* split.c - see split.h. A state machine over the text that is not decided yet (`hold`). */
#include "ask/split_impl.h"

#include <stdlib.h>
#include <string.h>

static const char think_open[] = "<think>", think_close[] = "</think>";
static const char call_close[] = "</tool_call>";

srv_split *srv_split_open(const srv_split_options *options)
{
    srv_split *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->o = *options;
    s->thought_over = !options->reasoning;
    s->state = options->calling ? CALL : options->thinking ? THOUGHT : START;
    s->drop_space = options->thinking;
    return s;
}

void srv_split_close(srv_split *s)
{
    if (!s)
        return;
    srv_textbuf_free(&s->hold);
    srv_textbuf_free(&s->out);
    srv_textbuf_free(&s->rows);
    srv_textbuf_free(&s->gap);
    json_decref(s->told);
    json_decref(s->head);
    free(s);
}

int srv_split_calls(const srv_split *s)
{
    return s->n_calls;
}

bool srv_split_cut(const srv_split *s)
{
    return s->cut;
}

/* ---- pieces ---- */

static void add_piece(srv_split *s, srv_delta_kind kind, const char *text, size_t n, bool cut)
{
    row r = {kind, s->out.n, n, s->n_calls - 1, cut};
    srv_textbuf_add(&s->out, text, n);
    srv_textbuf_add(&s->out, "", 1); /* a NUL after each */
    if (s->out.failed)
        return; /* no piece whose text is not there */
    srv_textbuf_add(&s->rows, (const char *)&r, sizeof r);
}

void srv_split_emit(srv_split *s, srv_delta_kind kind, const char *text, size_t n)
{
    if (n || (kind != SRV_DELTA_TEXT && kind != SRV_DELTA_REASONING))
        add_piece(s, kind, text, n, false);
}

void srv_split_end(srv_split *s, bool cut)
{
    s->cut |= cut;
    add_piece(s, SRV_DELTA_TOOL_END, "", 0, cut);
}

/* The first n bytes of hold are this. */
static void give(srv_split *s, srv_delta_kind kind, size_t n)
{
    if (kind == SRV_DELTA_TEXT && n) {
        srv_split_emit(s, kind, s->gap.data, s->gap.n);
        srv_textbuf_drop(&s->gap, s->gap.n);
        s->said = true;
    }
    srv_split_emit(s, kind, s->hold.data, n);
    srv_textbuf_drop(&s->hold, n);
}

bool srv_split_next(srv_split *s, srv_piece *out)
{
    row r;
    if ((s->n_taken + 1) * sizeof r > s->rows.n)
        return false;
    memcpy(&r, s->rows.data + s->n_taken++ * sizeof r, sizeof r);
    *out = (srv_piece){r.kind, s->out.data + r.at, r.n, r.tool_index, r.cut};
    return true;
}

/* ---- looking at hold ---- */

static size_t spaces(const srv_split *s)
{
    size_t n = 0;
    while (n < s->hold.n && srv_split_space(s->hold.data[n]))
        n++;
    return n;
}

/* How hold, from `at`, and a word compare: 1 it begins with it, 0 it may when more comes, -1 no. */
int srv_split_begins(const srv_split *s, size_t at, const char *word)
{
    size_t have = s->hold.n - at, n = strlen(word), common = have < n ? have : n;
    if (common && memcmp(s->hold.data + at, word, common) != 0)
        return -1;
    return have >= n ? 1 : 0;
}

/* Where the word is in hold, or hold.n. */
static size_t find(const srv_split *s, const char *word)
{
    const char *at = s->hold.n ? memmem(s->hold.data, s->hold.n, word, strlen(word)) : NULL;
    return at ? (size_t)(at - s->hold.data) : s->hold.n;
}

/* Bytes at the end of hold that must wait: what may become the word, and blanks before it. */
static size_t waiting(const srv_split *s, const char *word)
{
    size_t n = s->hold.n, most = strlen(word) - 1, k = n < most ? n : most;
    while (k && memcmp(s->hold.data + n - k, word, k) != 0)
        k--;
    while (k < n && srv_split_space(s->hold.data[n - k - 1]))
        k++;
    return k;
}

static size_t without_space_before(const srv_split *s, size_t n)
{
    while (n && srv_split_space(s->hold.data[n - 1]))
        n--;
    return n;
}

static const char *marker_of(srv_tool_style style)
{
    return style == SRV_TOOLS_HERMES    ? "<tool_call>"
           : style == SRV_TOOLS_XML     ? "<tool_call>"
           : style == SRV_TOOLS_MISTRAL ? "[TOOL_CALLS]"
                                        : NULL;
}

/* ---- calls ---- */

static void begin_call(srv_split *s, size_t marker)
{
    s->state = CALL;
    s->marker = s->scan = marker;
    s->depth = s->n_tries = 0;
    s->function = NULL;
    s->args = s->args_end = s->sent = 0;
    json_decref(s->head);
    s->head = NULL;
    json_object_clear(s->told);
    s->in_text = s->escaped = s->begun = s->in_args = false;
}

const json_t *srv_split_tool(const srv_split *s, const char *name)
{
    size_t i;
    json_t *tool;
    json_array_foreach(s->o.tools, i, tool)
    {
        const json_t *function = json_object_get(tool, "function");
        const char *known = json_string_value(json_object_get(function, "name"));
        if (known && strcmp(known, name) == 0)
            return function;
    }
    return NULL;
}

/* Before the first call behind something said: the blanks there, or one, will part that from what
 * is said behind the call. */
static void keep_gap(srv_split *s)
{
    size_t n = spaces(s);
    if (s->said && s->gap.n == 0)
        srv_textbuf_add(&s->gap, n ? s->hold.data : " ", n ? n : 1);
}

void srv_split_announce(srv_split *s, const char *name)
{
    keep_gap(s);
    s->n_calls++;
    s->begun = true;
    srv_split_emit(s, SRV_DELTA_TOOL_BEGIN, name, strlen(name));
}

/* It was no call: the marker is text, what follows it is looked at again. */
void srv_split_no_call(srv_split *s)
{
    s->state = SAID;
    give(s, SRV_DELTA_TEXT, s->marker);
}

/* After a call: its closing, another call, or something said. */
static bool step_after(srv_split *s)
{
    size_t n = spaces(s);
    s->drop_space = true;
    if (n == s->hold.n)
        return false;
    char c = s->hold.data[n];
    bool tagged = s->o.style == SRV_TOOLS_HERMES || s->o.style == SRV_TOOLS_XML;
    int closes = tagged ? srv_split_begins(s, n, call_close) : -1;
    if (closes == 0)
        return false;
    bool list = s->o.style == SRV_TOOLS_MISTRAL, lone = s->o.style == SRV_TOOLS_LLAMA3;
    if (closes == 1)
        srv_textbuf_drop(&s->hold, n + strlen(call_close));
    else if (list && c == ']')
        srv_textbuf_drop(&s->hold, n + 1);
    if ((list && c == ',') || (lone && (c == ';' || c == '{')))
        begin_call(s, n + (c != '{'));
    else
        s->state = SAID;
    return true;
}

/* ---- what is said and thought ---- */

static bool drop_spaces(srv_split *s)
{
    srv_textbuf_drop(&s->hold, spaces(s));
    s->drop_space = s->hold.n == 0;
    return !s->drop_space;
}

static bool step_thought(srv_split *s)
{
    if (s->drop_space && !drop_spaces(s))
        return false;
    size_t at = find(s, think_close);
    if (at == s->hold.n) {
        give(s, SRV_DELTA_REASONING, s->hold.n - waiting(s, think_close));
        return false;
    }
    size_t n = without_space_before(s, at);
    give(s, SRV_DELTA_REASONING, n);
    srv_textbuf_drop(&s->hold, at - n + strlen(think_close));
    s->state = START;
    s->thought_over = s->drop_space = true;
    return true;
}

/* At the beginning: thought, a call without a marker, or something said. */
static bool step_start(srv_split *s)
{
    bool lone = s->o.style == SRV_TOOLS_LLAMA3;
    if (s->drop_space && !drop_spaces(s))
        return false;
    size_t n = s->thought_over && !lone ? 0 : spaces(s);
    if (n == s->hold.n)
        return false;
    int thinks = s->thought_over ? -1 : srv_split_begins(s, n, think_open);
    if (thinks == 0)
        return false;
    if (thinks == 1) {
        srv_textbuf_drop(&s->hold, n + strlen(think_open));
        s->drop_space = true;
        s->state = THOUGHT;
    } else if (lone && s->hold.data[n] == '{') {
        begin_call(s, n);
    } else {
        s->state = SAID;
    }
    return true;
}

static bool step_said(srv_split *s)
{
    const char *marker = marker_of(s->o.style);
    if (s->drop_space && !drop_spaces(s))
        return false;
    size_t at = marker ? find(s, marker) : s->hold.n;
    if (at == s->hold.n) {
        give(s, SRV_DELTA_TEXT, s->hold.n - (marker ? waiting(s, marker) : 0));
        return false;
    }
    size_t n = without_space_before(s, at);
    give(s, SRV_DELTA_TEXT, n);
    begin_call(s, at - n + strlen(marker));
    return true;
}

/* ---- all together ---- */

static bool step(srv_split *s)
{
    switch (s->state) {
    case START:
        return step_start(s);
    case THOUGHT:
        return step_thought(s);
    case CALL:
        return s->o.style == SRV_TOOLS_XML ? srv_split_step_xml(s) : srv_split_step_json(s);
    case AFTER:
        return step_after(s);
    default:
        return step_said(s);
    }
}

static bool is_good(const srv_split *s)
{
    return !s->hold.failed && !s->out.failed && !s->rows.failed && !s->gap.failed;
}

/* Pieces that were handed out are forgotten. */
static void forget(srv_split *s)
{
    if (s->n_taken * sizeof(row) < s->rows.n)
        return;
    s->n_taken = 0;
    srv_textbuf_drop(&s->rows, s->rows.n);
    srv_textbuf_drop(&s->out, s->out.n);
}

bool srv_split_push(srv_split *s, const char *text, size_t n)
{
    forget(s);
    srv_textbuf_add(&s->hold, text, n);
    while (is_good(s) && s->hold.n && step(s))
        ;
    return is_good(s);
}

/* What is held back when nothing follows is no text: blanks, the beginning of a closing mark, or of
 * a call that must be. */
static bool is_nothing(const srv_split *s)
{
    bool forced = s->state == CALL && s->o.calling && s->n_calls == 0;
    return forced || s->state == AFTER || (s->drop_space && spaces(s) == s->hold.n);
}

bool srv_split_finish(srv_split *s)
{
    forget(s);
    if (s->state == CALL)
        srv_split_tell_held(s);
    if (s->state == CALL && s->begun)
        srv_split_end(s, s->in_args);
    else if (s->state == THOUGHT)
        give(s, SRV_DELTA_REASONING, s->hold.n);
    else if (!is_nothing(s))
        give(s, SRV_DELTA_TEXT, s->hold.n);
    srv_textbuf_drop(&s->hold, s->hold.n);
    s->state = SAID;
    return is_good(s);
}
