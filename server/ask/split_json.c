/* split_json.c - calls as most models write them: an object with a name and arguments. It is told
 * as it comes, or, where a reply is sent as a whole anyway, once it is seen to be JSON. */
#include <stdlib.h>
#include <string.h>

#include "ask/json_text.h"
#include "ask/split_impl.h"

typedef enum scanned { GOES_ON, IS_OVER, IS_WRONG } scanned;

static json_t *arguments_of(const json_t *call)
{
    json_t *arguments = json_object_get(call, "arguments");
    return arguments ? arguments : json_object_get(call, "parameters");
}

/* The name in a call's object, if it is one of a tool. */
static const char *name_of(const srv_split *s, const json_t *call)
{
    const json_t *value = json_object_get(call, "name");
    const char *name = json_string_value(value);
    return name && strlen(name) == json_string_length(value) && srv_split_tool(s, name) ? name
                                                                                        : NULL;
}

/* The call's text before `at`, with a value of our own and its end. NULL: it is no JSON. */
static json_t *completed(srv_split *s, size_t at, const char *ending)
{
    srv_textbuf text = {0};
    srv_textbuf_add(&text, s->hold.data + s->marker, at - s->marker);
    srv_textbuf_str(&text, ending);
    json_t *call = text.failed ? NULL : srv_json_value(text.data, text.n);
    s->hold.failed |= text.failed;
    srv_textbuf_free(&text);
    return call;
}

/* Arguments begin at `at`; `head` has the name. */
static void begin_arguments(srv_split *s, json_t *head, size_t at)
{
    s->head = json_incref(head);
    s->args = s->sent = at;
    s->in_args = true;
    if (!s->o.whole)
        srv_split_announce(s, name_of(s, head));
}

/* An inner object begins at `at`: if what stands before it is a name and the key of arguments,
 * these begin. Asked by completing the text before it in two ways: only what both times is our
 * own value stands at `at`. */
static void try_begin(srv_split *s, size_t at)
{
    json_t *call = completed(s, at, "null}");
    const char *name = name_of(s, call);
    if (name && json_is_null(arguments_of(call))) {
        json_t *other = completed(s, at, "true}");
        if (json_is_true(arguments_of(other)))
            begin_arguments(s, call, at);
        json_decref(other);
    }
    json_decref(call);
}

/* The whole object came before it could be begun (its keys were in another order). */
static bool whole_call(srv_split *s, size_t end)
{
    json_t *call = srv_json_value(s->hold.data + s->marker, end - s->marker);
    const char *name = name_of(s, call);
    json_t *arguments = arguments_of(call);
    char *text = name && json_is_object(arguments) ? json_dumps(arguments, 0) : NULL;
    if (text) {
        srv_split_announce(s, name);
        srv_split_emit(s, SRV_DELTA_TOOL_ARGS, text, strlen(text));
    }
    free(text);
    json_decref(call);
    return text != NULL;
}

/* ---- its end ---- */

static bool is_object(const srv_split *s, size_t from, size_t end)
{
    json_t *value = srv_json_value(s->hold.data + from, end - from);
    bool good = json_is_object(value);
    json_decref(value);
    return good;
}

/* Of a call that was announced: the arguments up to `end`. */
static void tell_arguments(srv_split *s, size_t end)
{
    if (!s->begun || end <= s->sent)
        return;
    srv_split_emit(s, SRV_DELTA_TOOL_ARGS, s->hold.data + s->sent, end - s->sent);
    s->sent = end;
}

/* It is no JSON at `at`. What was announced has no end, and what follows is text. */
static void break_call(srv_split *s, size_t at)
{
    if (!s->begun) {
        srv_split_no_call(s);
        return;
    }
    if (!s->in_args)
        at = s->args_end; /* these were whole */
    tell_arguments(s, at);
    srv_split_end(s, true);
    srv_textbuf_drop(&s->hold, at);
    s->in_args = false;
    s->state = SAID;
}

void srv_split_tell_held(srv_split *s)
{
    if (!s->args || s->begun)
        return;
    srv_split_announce(s, name_of(s, s->head));
    tell_arguments(s, s->in_args ? s->hold.n : s->args_end);
}

static void end_call(srv_split *s, size_t end)
{
    if (s->args ? !is_object(s, s->marker, end) : !whole_call(s, end)) {
        break_call(s, s->args_end);
        return;
    }
    srv_split_tell_held(s);
    srv_split_end(s, false);
    srv_textbuf_drop(&s->hold, end);
    s->state = AFTER;
}

/* ---- byte by byte ---- */

/* What JSON has outside its texts: the mark that ends a call is none of it. */
static bool may_be_outside(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == 'E' || srv_split_space(c) ||
           (c && strchr("{}[],:\"+-.", c));
}

/* Moves over one byte. */
static scanned scan_byte(srv_split *s, char c)
{
    if (s->in_text) {
        s->in_text = s->escaped || c != '"';
        s->escaped = !s->escaped && c == '\\';
        return GOES_ON;
    }
    s->in_text = c == '"';
    if (!may_be_outside(c))
        return IS_WRONG;
    if (c == '{' || c == '[') {
        if (s->depth == SRV_SPLIT_DEPTH)
            return IS_WRONG;
        s->open[s->depth++] = c;
    } else if (c == '}' || c == ']') {
        if (s->open[--s->depth] != (c == '}' ? '{' : '['))
            return IS_WRONG;
        return s->depth ? GOES_ON : IS_OVER;
    }
    return GOES_ON;
}

/* Where the arguments end with this byte: false if they are no object. */
static bool end_arguments(srv_split *s, char c)
{
    if (!s->in_args || s->depth != 1 || s->in_text || c != '}')
        return true;
    if (!is_object(s, s->args, s->scan + 1))
        return false;
    s->args_end = s->scan + 1;
    tell_arguments(s, s->args_end);
    s->in_args = false;
    return true;
}

/* Passes what may stand between the marker and the object. False: more must come, or it is no call.
 */
static bool find_object(srv_split *s)
{
    bool list = s->o.style == SRV_TOOLS_MISTRAL;
    while (s->scan < s->hold.n &&
           (srv_split_space(s->hold.data[s->scan]) || (list && (s->hold.data[s->scan] == '['))))
        s->scan++;
    if (s->scan == s->hold.n)
        return false;
    if (s->hold.data[s->scan] != '{') {
        srv_split_no_call(s);
        return false;
    }
    s->marker = s->scan; /* the bytes before the object */
    return true;
}

bool srv_split_step_json(srv_split *s)
{
    if (s->depth == 0 && !find_object(s))
        return s->state != CALL;
    for (; s->scan < s->hold.n; s->scan++) {
        char c = s->hold.data[s->scan];
        if (c == '{' && s->depth == 1 && !s->in_text && !s->args && s->n_tries++ < 8)
            try_begin(s, s->scan);
        scanned now = scan_byte(s, c);
        if (now == IS_WRONG || !end_arguments(s, c))
            break_call(s, s->scan);
        else if (now == IS_OVER)
            end_call(s, s->scan + 1);
        if (s->state != CALL)
            return true;
    }
    if (s->in_args)
        tell_arguments(s, s->scan);
    return false;
}
