/* ask_grammar.c - what the answer is restricted to. Fails closed: what cannot be promised is
 * refused, with the words of the library, which name the keyword or the place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask/ask_impl.h"
#include "server.h"

static bool refuse(srv_exchange *x, const char *field, const bitnet_error *err)
{
    if (err->status == BITNET_ARGUMENT)
        srv_fail(x, 400, "invalid_grammar", field, "%s: %s", field, err->message);
    else
        srv_fail_with(x, err);
    return false;
}

static bool check_size(srv_exchange *x, const char *field, size_t n)
{
    size_t most = srv_server_of(x)->config->max_grammar;
    if (!most || n <= most)
        return true;
    srv_fail(x, 400, "invalid_value", field, "%s has %zu bytes: at most %zu are allowed", field, n,
             most);
    return false;
}

static bool compile(srv_exchange *x, const srv_model *model, bitnet_grammar_kind kind,
                    const char *field, const char *text, size_t n, srv_grammar **out)
{
    bitnet_error err = {BITNET_OK, ""};
    if (!check_size(x, field, n))
        return false;
    if (srv_grammars_use(model->grammars, model->engine, kind, text, n, out, &err) != BITNET_OK)
        return refuse(x, field, &err);
    return true;
}

static bool is_real(const char *number, size_t n)
{
    return memchr(number, '.', n) || memchr(number, 'e', n) || memchr(number, 'E', n);
}

/* Writes the number at `from`, of n bytes, with 15 or 16 digits where these tell it and are no more
 * bytes; returns the bytes. */
static size_t shorten(const char *from, size_t n, char *to)
{
    enum { SURE = 15, ALL = 17 }; /* digits that any double keeps; that tell it apart */
    char brief[40];
    double value = strtod(from, NULL);
    for (int digits = SURE; digits < ALL; digits++) {
        snprintf(brief, sizeof brief, "%.*g", digits, value);
        size_t k = strlen(brief);
        bool real = strcspn(brief, ".e") < k;
        if (strtod(brief, NULL) != value || k + (real ? 0 : 2) > n)
            continue;
        memcpy(to, brief, k);
        memcpy(to + k, ".0", real ? 0 : 2);
        return k + (real ? 0 : 2);
    }
    memmove(to, from, n);
    return n;
}

/* A text with the same values, and reals without digits that only a double has: what a constant of
 * the schema says is written by its digits. NULL: no memory. */
static char *schema_text(const json_t *schema)
{
    static const char number[] = "+-.0123456789eE";
    char *text = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY);
    char *to = text;
    bool quoted = false;
    for (const char *at = text; at && *at;) {
        size_t n = quoted || !strchr("-0123456789", *at) ? 0 : strspn(at, number);
        if (n && is_real(at, n)) {
            to += shorten(at, n, to);
            at += n;
            continue;
        }
        quoted ^= *at == '"';
        n = n ? n : quoted && *at == '\\' && at[1] ? 2 : 1;
        memmove(to, at, n);
        to += n, at += n;
    }
    if (text)
        *to = '\0';
    return text;
}

static bool compile_schema(srv_exchange *x, const srv_model *model, const char *field,
                           const json_t *schema, srv_grammar **out)
{
    char *text = schema_text(schema);
    if (!text)
        return srv_no_room(x);
    bool good = compile(x, model, BITNET_GRAMMAR_JSON_SCHEMA, field, text, strlen(text), out);
    free(text);
    return good;
}

/* A grammar is the only form of the answer that is asked for. */
static bool check_alone(srv_exchange *x, const srv_ask *a, const json_t *forced)
{
    const char *other = forced                        ? "a tool_choice that forces a call"
                        : a->schema || a->json_object ? srv_ask_form(a)
                                                      : NULL;
    if (!a->grammar || !other)
        return true;
    srv_fail(x, 400, "unsupported_value", "grammar",
             "grammar and %s together are not supported: leave one out", other);
    return false;
}

bool srv_ask_grammar(srv_exchange *x, const srv_model *model, const srv_ask *a,
                     const json_t *schema, srv_grammar **out)
{
    const char *field = schema ? "tools" : srv_ask_form(a);
    *out = NULL;
    if (!check_alone(x, a, schema))
        return false;
    if (!schema)
        schema = a->schema;
    if (schema)
        return compile_schema(x, model, field, schema, out);
    if (a->json_object)
        return compile(x, model, BITNET_GRAMMAR_JSON_OBJECT, field, "", 0, out);
    if (a->grammar)
        return compile(x, model, BITNET_GRAMMAR_GBNF, "grammar", a->grammar, strlen(a->grammar),
                       out);
    return true;
}
