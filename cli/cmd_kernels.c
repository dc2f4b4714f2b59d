/* cmd_kernels.c - `bitnet kernels` and `bitnet tune`: the registry as a list, the answer to a
 * question, and measured choices. */
#include <errno.h>

#include "cli.h"

/* ---- --for op=linear,m=1,... ---- */

typedef struct query {
    bitnet_kernel_query q;
    char *text; /* owned; q points into it */
} query;

static bool whole_number(const char *s, uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long x = strtoull(s, &end, 10);
    if (s[0] < '0' || s[0] > '9' || *end || errno)
        return false;
    *out = x;
    return true;
}

/* `seen`: a bit per part given so far. */
static int set_part(bitnet_kernel_query *q, unsigned *seen, const char *name, const char *given)
{
    uint64_t head = q->head;
    const struct {
        const char *name, **text;
        uint64_t *number;
    } parts[] = {{"op", &q->op, NULL}, {"format", &q->format, NULL}, {"dtype", &q->dtype, NULL},
                 {"m", NULL, &q->m},   {"n", NULL, &q->n},           {"k", NULL, &q->k},
                 {"head", NULL, &head}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(parts[i].name, name) != 0)
            continue;
        if (*seen & 1u << i)
            return fail(EXIT_USAGE, "--for: %s is given twice", name);
        *seen |= 1u << i;
        if (parts[i].text)
            *parts[i].text = given;
        else if (!whole_number(given, parts[i].number))
            return fail(EXIT_USAGE, "--for: %s=%s is not a whole number", name, given);
        q->head = head != 0;
        return EXIT_OK;
    }
    return fail(EXIT_USAGE, "--for: '%s' is none of op format dtype m n k head", name);
}

static int parse_query(const char *written, query *out)
{
    int rc = EXIT_OK;
    unsigned seen = 0;
    *out = (query){.text = xstrdup(written)};
    for (char *p = out->text; p && *p && !rc;) {
        char *comma = strchr(p, ','), *equals;
        if (comma)
            *comma = '\0';
        equals = strchr(p, '=');
        if (!equals || !equals[1])
            rc = fail(EXIT_USAGE, "--for: '%s' is not name=value", p);
        else
            *equals = '\0', rc = set_part(&out->q, &seen, p, equals + 1);
        p = comma ? comma + 1 : NULL;
    }
    return rc;
}

/* ---- kernels ---- */

static json_t *registry_json(const bitnet_runtime *runtime, const bitnet_kernel_query *q)
{
    size_t n = 0;
    bitnet_kernels_json(runtime, q, NULL, 0, &n, NULL);
    char *bytes = xmalloc(n);
    json_t *j = NULL;
    if (bitnet_kernels_json(runtime, q, bytes, n, &n, NULL) == BITNET_OK)
        j = json_loadb(bytes, n, 0, NULL);
    free(bytes);
    return j;
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static void print_rows(const json_t *root, bool judged)
{
    json_t *list = json_object_get(root, "kernels"), *k;
    size_t i;
    out_printf("%-31s %-6s %-17s %-9s %-5s %-8s %-10s %s\n", "kernel", "device", "op", "format",
               "dtype", "isa", "tier", judged ? "verdict" : "available");
    json_array_foreach(list, i, k)
    {
        const char *veto = text_of(k, "veto");
        const char *verdict = json_is_true(json_object_get(k, "selected")) ? "selected"
                              : *veto                                      ? veto
                                                                           : "could serve";
        const char *here = json_is_true(json_object_get(k, "available")) ? "yes" : "no";
        out_printf("%-31s %-6s %-17s %-9s %-5s %-8s %-10s %s\n", text_of(k, "id"),
                   text_of(k, "device"), text_of(k, "op"), text_of(k, "format"),
                   text_of(k, "dtype"), text_of(k, "isa"), text_of(k, "tier"),
                   judged ? verdict : here);
    }
}

static void print_within(const json_t *root)
{
    json_t *list = json_object_get(root, "within"), *id;
    size_t i;
    if (json_array_size(list) == 0)
        return;
    out_printf("Where a model does it together with other operations:");
    json_array_foreach(list, i, id) out_printf(" %s", json_string_value(id));
    out_printf("\n");
}

/* If everything listed is vetoed, the registry's own words for a key among them. */
static int refusal(const bitnet_runtime *runtime, const json_t *root, const bitnet_kernel_query *q)
{
    json_t *k;
    size_t i;
    bitnet_kernel_query whole = *q;
    bitnet_error err = {0};
    const char *id;
    json_array_foreach(json_object_get(root, "kernels"), i, k)
    {
        if (!*text_of(k, "veto"))
            return EXIT_OK;
        whole.op = text_of(k, "op");
        whole.format = text_of(k, "format");
        whole.dtype = text_of(k, "dtype");
    }
    return outcome(bitnet_runtime_select(runtime, &whole, &id, &err), &err);
}

static int list_kernels(const args *a, const bitnet_runtime *runtime, const bitnet_kernel_query *q)
{
    json_t *root = registry_json(runtime, q);
    if (!root)
        return fail(EXIT_MEMORY, "out of memory while listing kernels");
    size_t n = json_array_size(json_object_get(root, "kernels"));
    if (opt_json(a))
        j_print(json_incref(root));
    else if (n) {
        print_rows(root, q != NULL);
        print_within(root);
    }
    int rc = n && q ? refusal(runtime, root, q) : EXIT_OK;
    json_decref(root);
    if (n == 0)
        return fail(EXIT_NOT_AVAILABLE,
                    "--for: there is no kernel of op '%s', format '%s', dtype "
                    "'%s'",
                    q && q->op ? q->op : "any", q && q->format ? q->format : "any",
                    q && q->dtype ? q->dtype : "any");
    return rc;
}

int cmd_kernels(args *a)
{
    bitnet_runtime *runtime = NULL;
    bitnet_bridge *bridge = NULL;
    query q = {0};
    const char *asked = opt_text(a, OPT_FOR);
    int rc = asked ? parse_query(asked, &q) : EXIT_OK;
    rc = rc ? rc : open_runtime(a, 1, &runtime);
    q.q.no_pack = opt_on(a, OPT_NO_PACK);
    rc = rc ? rc : serve_bridge(a, runtime, &bridge);
    if (!rc)
        rc = list_kernels(a, runtime, asked ? &q.q : NULL);
    bitnet_runtime_close(runtime);
    bitnet_bridge_close(bridge);
    free(q.text);
    return rc;
}

/* ---- tune ---- */

typedef struct tuning {
    const args *args;
    json_t *list;
    size_t n_done, n_shapes;
} tuning;

static void told(void *user, const bitnet_tune_result *r)
{
    tuning *t = user;
    const bitnet_kernel_query *s = &r->shape;
    if (r->best) { /* one of every shape is */
        progress_step(NULL, ++t->n_done, t->n_shapes);
        progress_detail("%zu of %zu shapes", t->n_done, t->n_shapes);
    }
    if (opt_json(t->args))
        json_array_append_new(t->list, j_object("op:t format:t dtype:t m:n n:n k:n kernel:t "
                                                "median_ms:f best:b",
                                                s->op, s->format, s->dtype, s->m, s->n, s->k,
                                                r->kernel, r->median_ms, r->best));
    else
        out_printf("%-8s m=%-4llu n=%-6llu k=%-6llu %-26s %10.4f ms%s\n", s->format,
                   (unsigned long long)s->m, (unsigned long long)s->n, (unsigned long long)s->k,
                   r->kernel, r->median_ms, r->best ? "  best" : "");
}

/* Every shape of the model with every number of tokens. */
static int make_shapes(const loaded *m, bitnet_kernel_query **out, size_t *n)
{
    size_t n_shapes = bitnet_engine_shapes(m->engine, NULL, 0);
    bitnet_kernel_query *base = xmalloc((n_shapes + 1) * sizeof *base);
    char word[32];
    int rc = EXIT_OK;
    n_shapes = bitnet_engine_shapes(m->engine, base, n_shapes);
    *n = 0;
    *out = NULL;
    for (size_t i = 0;
         !rc && word_at(opt_text(m->args, OPT_TUNE_TOKENS), ',', i, word, sizeof word); i++) {
        uint64_t tokens = 0;
        if (!whole_number(word, &tokens) || tokens < 1 || tokens > 65536)
            rc = fail(EXIT_USAGE, "--tokens: '%s' is not a number from 1 to 65536", word);
        for (size_t k = 0; !rc && k < n_shapes; k++) {
            *out = xrealloc(*out, (*n + 1) * sizeof **out);
            (*out)[*n] = base[k];
            (*out)[(*n)++].m = tokens;
        }
    }
    free(base);
    return rc;
}

int cmd_tune(args *a)
{
    loaded m;
    bitnet_error err = {0};
    bitnet_kernel_query *shapes = NULL;
    size_t n = 0;
    tuning t = {a, json_array(), 0, 0};
    const char *path = opt_text(a, OPT_TUNE_OUT);
    int rc = load_engine(&m, a, false);
    rc = rc ? rc : make_shapes(&m, &shapes, &n);
    t.n_shapes = n;
    progress_begin(UNIT_NONE, "timing kernels");
    if (!rc)
        rc = outcome(bitnet_runtime_tune(m.runtime, shapes, n, (int)opt_int(a, OPT_REPEATS), path,
                                         told, &t, &err),
                     &err);
    progress_end();
    if (!rc && opt_json(a))
        j_print(j_object("results:j output:t", t.list, path));
    else
        json_decref(t.list);
    free(shapes);
    load_close(&m);
    return rc;
}
