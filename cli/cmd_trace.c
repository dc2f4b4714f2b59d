/* cmd_trace.c - `bitnet trace-diff`: the first tensor in which two traces differ. A trace is a
 * folder of records as src/ops/trace.c writes them; hides how they are read and put in order. */
#include <dirent.h>
#include <math.h>
#include <sys/stat.h>

#include "cli.h"

enum { RECORD_MAX = 1 << 16 }; /* bytes of a file that can be a record */

typedef struct trace {
    const char *folder;
    json_t **records; /* by index */
    size_t n;
} trace;

/* ---- reading ---- */

/* What every record has, and of which type. */
static const struct {
    const char *key;
    json_type type;
} members[] = {{"index", JSON_INTEGER}, {"name", JSON_STRING},  {"stage", JSON_STRING},
               {"layer", JSON_INTEGER}, {"seq", JSON_INTEGER},  {"shape", JSON_ARRAY},
               {"dtype", JSON_STRING},  {"sha256", JSON_STRING}};

static int check_record(const char *path, const json_t *record)
{
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const json_t *m = json_object_get(record, members[i].key);
        if (!m || json_typeof(m) != members[i].type)
            return fail(EXIT_IO,
                        "%s: not a record of a trace: its %s is missing or of another type", path,
                        members[i].key);
    }
    return EXIT_OK;
}

static int read_record(const char *path, json_t **out)
{
    struct stat st;
    json_error_t why;
    buffer text = {0};
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > RECORD_MAX)
        return fail(EXIT_IO, "%s: not a record of a trace: no file of at most %d bytes", path,
                    RECORD_MAX);
    int rc = read_input(path, &text);
    if (rc)
        return rc;
    *out = json_loadb(text.data ? text.data : "", text.n, 0, &why);
    free_buffer(&text);
    if (!*out)
        return fail(EXIT_IO, "%s: not a record of a trace: line %d: %s", path, why.line, why.text);
    return check_record(path, *out);
}

static int by_index(const void *a, const void *b)
{
    json_int_t x = json_integer_value(json_object_get(*(json_t *const *)a, "index")),
               y = json_integer_value(json_object_get(*(json_t *const *)b, "index"));
    return (x > y) - (x < y);
}

static bool is_record(const char *name)
{
    size_t n = strlen(name);
    return n > 5 && strcmp(name + n - 5, ".json") == 0;
}

static int read_entry(trace *t, const char *name)
{
    char *path = xformat("%s/%s", t->folder, name);
    t->records = xrealloc(t->records, (t->n + 1) * sizeof *t->records);
    t->records[t->n] = NULL;
    int rc = read_record(path, &t->records[t->n++]);
    free(path);
    return rc ? rc : interrupted();
}

static int read_trace(trace *t, const char *folder)
{
    int rc = EXIT_OK;
    const struct dirent *e;
    t->folder = folder;
    DIR *d = opendir(folder);
    if (!d)
        return fail(EXIT_IO, "trace-diff: the folder '%s' cannot be read", folder);
    while (!rc && (e = readdir(d)) != NULL)
        if (is_record(e->d_name))
            rc = read_entry(t, e->d_name);
    closedir(d);
    if (!rc && t->n == 0)
        return fail(EXIT_IO,
                    "trace-diff: '%s' holds no trace; make one with bitnet run --trace-dir",
                    folder);
    if (!rc)
        qsort(t->records, t->n, sizeof *t->records, by_index);
    return rc;
}

static void free_trace(trace *t)
{
    for (size_t i = 0; i < t->n; i++)
        json_decref(t->records[i]);
    free(t->records);
}

/* ---- comparing ---- */

typedef struct comparison {
    trace side[2];
    double tolerance;
    size_t n_equal, n_close; /* before the first difference */
    size_t at;               /* of the first difference */
    const char *what;        /* that differs; NULL: nothing */
} comparison;

static bool close_enough(const json_t *a, const json_t *b, double tolerance)
{
    const json_t *x = json_object_get(a, "rms"), *y = json_object_get(b, "rms");
    if (!json_is_number(x) || !json_is_number(y))
        return false;
    double p = json_number_value(x), q = json_number_value(y);
    return fabs(p - q) <= tolerance * fmax(fabs(p), fabs(q));
}

/* The member in which they differ; NULL: none. */
static const char *difference(comparison *c, const json_t *a, const json_t *b)
{
    for (size_t i = 1; i < sizeof members / sizeof *members - 1; i++)
        if (!json_equal(json_object_get(a, members[i].key), json_object_get(b, members[i].key)))
            return members[i].key;
    if (json_equal(json_object_get(a, "sha256"), json_object_get(b, "sha256"))) {
        c->n_equal++;
        return NULL;
    }
    if (c->tolerance <= 0 || !close_enough(a, b, c->tolerance))
        return "sha256";
    c->n_close++;
    return NULL;
}

static void compare(comparison *c)
{
    const trace *a = &c->side[0], *b = &c->side[1];
    size_t n = a->n < b->n ? a->n : b->n;
    for (c->at = 0; c->at < n && !c->what; c->at++)
        c->what = difference(c, a->records[c->at], b->records[c->at]);
    if (c->what)
        c->at--;
    else if (a->n != b->n)
        c->what = "length";
}

/* ---- telling ---- */

static const char *text_of(const json_t *record, const char *key)
{
    const char *s = json_string_value(json_object_get(record, key));
    return s ? s : "";
}

static void print_side(buffer *out, const trace *t, size_t at)
{
    text_puts(out, "  ");
    text_visible(out, t->folder, strlen(t->folder), false);
    if (at >= t->n) {
        text_printf(out, ": ends after %zu tensor%s\n", t->n, plural(t->n));
        return;
    }
    const json_t *r = t->records[at], *shape = json_object_get(r, "shape");
    text_puts(out, ": ");
    text_visible(out, text_of(r, "name"), strlen(text_of(r, "name")), false);
    text_puts(out, ", stage ");
    text_visible(out, text_of(r, "stage"), strlen(text_of(r, "stage")), false);
    text_printf(out, ", layer %lld, pass %lld, ",
                (long long)json_integer_value(json_object_get(r, "layer")),
                (long long)json_integer_value(json_object_get(r, "seq")));
    for (size_t i = 0; i < json_array_size(shape); i++)
        text_printf(out, "%s%lld", i ? " x " : "",
                    (long long)json_integer_value(json_array_get(shape, i)));
    text_printf(out, " %.8s, rms %.9g, sha256 %.16s\n", text_of(r, "dtype"),
                json_number_value(json_object_get(r, "rms")), text_of(r, "sha256"));
}

static void print_text(const comparison *c)
{
    buffer out = {0};
    if (c->what)
        text_printf(&out, "the first difference is tensor %zu (%s)\n", c->at, c->what);
    for (int i = 0; c->what && i < 2; i++)
        print_side(&out, &c->side[i], c->at);
    text_printf(&out, "%zu tensor%s equal", c->n_equal, plural(c->n_equal));
    if (c->tolerance > 0)
        text_printf(&out, ", %zu within %g", c->n_close, c->tolerance);
    text_puts(&out, c->what ? " before it\n" : "\n");
    out_buffer(&out);
}

static json_t *side_json(const trace *t, size_t at)
{
    return at < t->n ? json_incref(t->records[at]) : json_null();
}

static json_t *report(const comparison *c)
{
    json_t *first = c->what ? j_object("at:n differs:t a:j b:j", c->at, c->what,
                                       side_json(&c->side[0], c->at), side_json(&c->side[1], c->at))
                            : json_null();
    return j_object("equal:b n_equal:n n_close:n n_a:n n_b:n first:j", !c->what, c->n_equal,
                    c->n_close, c->side[0].n, c->side[1].n, first);
}

int cmd_trace_diff(args *a)
{
    comparison c = {.tolerance = opt_float(a, OPT_TOLERANCE)};
    int rc = read_trace(&c.side[0], a->words[0]);
    rc = rc ? rc : read_trace(&c.side[1], a->words[1]);
    if (!rc) {
        compare(&c);
        rc = j_report(a, report(&c));
        if (!rc && !opt_json(a))
            print_text(&c);
        if (!rc && c.what)
            rc = fail(EXIT_MISMATCH, "trace-diff: the traces differ");
    }
    free_trace(&c.side[0]);
    free_trace(&c.side[1]);
    return rc;
}
