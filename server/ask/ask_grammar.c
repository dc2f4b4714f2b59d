/* ask_grammar.c - what the answer is restricted to. Fails closed: what cannot be promised is
 * refused, with the words of the library, which name the keyword or the place. */
#include <stdlib.h>
#include <string.h>

#include "ask/ask_impl.h"
#include "http/short_memory.h"
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

/* A text with the same values, and numbers as short as they can be for that: what a constant of the
 * schema says is written by its digits. NULL: no memory. */
static char *schema_text(const json_t *schema)
{
    enum { SHORT = 15, EXACT = 17 }; /* digits that survive a double, and that tell all of them */
    for (unsigned digits = SHORT;; digits++) {
        char *text =
            json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits));
        if (!text || digits == EXACT)
            return text;
        json_t *again = srv_json_load(text, strlen(text), JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        bool same = json_equal(again, schema);
        json_decref(again);
        if (same)
            return text;
        free(text);
    }
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
