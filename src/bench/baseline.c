/* baseline.c - has anything become slower? Rows of measurements as JSON lines, compared by
 * their identity. */
#include "engine/engine.h"
#include "bitnet_tools.h"
#include "format/json_file.h"

#include <math.h>
#include <stdio.h>

enum { NAME_MAX = sizeof(((bitnet_regression *)0)->name) };

typedef struct row {
    char name[NAME_MAX];
    double value;
    bool lower; /* is better */
    bool met;
} row;

typedef struct rows {
    row *data;
    size_t n, cap;
} rows;

/* Where a message belongs: "baseline line 3". */
typedef struct place {
    const char *what;
    size_t line;
    bitnet_error *err;
} place;

static bool add_text(const json_t *o, const char *key, char out[NAME_MAX])
{
    const json_t *v = json_object_get(o, key);
    size_t n = strlen(out);
    if (!v)
        return true;
    if (json_is_string(v))
        snprintf(out + n, NAME_MAX - n, "%s%s", n ? " " : "", json_string_value(v));
    else if (json_is_integer(v))
        snprintf(out + n, NAME_MAX - n, "%s%lld", n ? " " : "", (long long)json_integer_value(v));
    return json_is_string(v) || json_is_integer(v);
}

static bitnet_status wrong(const place *p, const char *why)
{
    return bnet_fail(p->err, BITNET_ARGUMENT, "%s: line %zu: %s", p->what, p->line, why);
}

static bitnet_status read_row(const place *p, const json_t *o, row *out)
{
    const json_t *value = json_object_get(o, "value"), *better = json_object_get(o, "better");
    const char *side = json_string_value(better);
    *out = (row){.value = json_number_value(value)};
    if (!json_is_string(json_object_get(o, "name")))
        return wrong(p, "\"name\" must be a text");
    if (!json_is_number(value) || !(out->value > 0) || !isfinite(out->value))
        return wrong(p, "\"value\" must be a number above 0");
    if (better && (!side || (strcmp(side, "lower") != 0 && strcmp(side, "higher") != 0)))
        return wrong(p, "\"better\" must be \"higher\" or \"lower\"");
    out->lower = side && side[0] == 'l';
    static const char *const keys[] = {"name", "model", "device", "threads"};
    for (size_t i = 0; i < BNET_COUNT(keys); i++)
        if (!add_text(o, keys[i], out->name))
            return wrong(p, "\"model\", \"device\" and \"threads\" must be texts or whole numbers");
    return BITNET_OK;
}

static row *find(const rows *r, const char *name)
{
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->data[i].name, name) == 0)
            return &r->data[i];
    return NULL;
}

static bitnet_status take_line(const place *p, const char *s, size_t n, rows *out)
{
    char why[256];
    row fresh;
    json_t *o;
    bitnet_status st = bnet_json_load(s, n, p->what, &o, why, sizeof why, p->err);
    if (st != BITNET_OK)
        return st;
    if (!o || !json_is_object(o)) {
        json_decref(o);
        return wrong(p, "no JSON object");
    }
    st = read_row(p, o, &fresh);
    json_decref(o);
    if (st != BITNET_OK)
        return st;
    row *same = find(out, fresh.name);
    if (!same) {
        if (!bnet_grow(&out->data, &out->cap, out->n + 1, sizeof *out->data))
            return bnet_no_memory(p->err, p->what);
        same = &out->data[out->n++];
    }
    *same = fresh;
    return BITNET_OK;
}

static bool blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r')
            return false;
    return true;
}

static bitnet_status read_rows(const char *what, const char *s, size_t n, rows *out,
                               bitnet_error *err)
{
    bitnet_status st = BITNET_OK;
    const char *end = s + n;
    for (size_t line = 1; st == BITNET_OK && s < end; line++) {
        const char *nl = memchr(s, '\n', (size_t)(end - s));
        size_t len = (size_t)((nl ? nl : end) - s);
        if (!blank(s, len))
            st = take_line(&(place){what, line, err}, s, len, out);
        s += len + 1;
    }
    return st;
}

/* How much better a row became: twice as good is 1, half as good is -0.5. */
static bitnet_regression judge(const row *before, const row *now, double max_regress)
{
    bitnet_regression r = {
        .before = before->value, .change = -1, .missing = !now, .regressed = true};
    snprintf(r.name, sizeof r.name, "%s", before->name);
    if (now) {
        r.now = now->value;
        r.change = before->lower ? before->value / now->value - 1 : now->value / before->value - 1;
        double worst =
            before->lower ? before->value / (1 - max_regress) : before->value * (1 - max_regress);
        r.regressed =
            before->lower ? now->value > worst * (1 + 1e-12) : now->value < worst * (1 - 1e-12);
    }
    return r;
}

static void compare(const rows *baseline, rows *now, double max_regress, bitnet_regression_fn each,
                    void *user, bitnet_baseline_result *out)
{
    for (size_t i = 0; i < baseline->n; i++) {
        row *match = find(now, baseline->data[i].name);
        bitnet_regression r = judge(&baseline->data[i], match, max_regress);
        if (match)
            match->met = true;
        out->n_compared += match != NULL;
        out->n_missing += r.missing;
        out->n_regressed += r.regressed && !r.missing;
        if (each)
            each(user, &r);
    }
    for (size_t i = 0; i < now->n; i++)
        out->n_new += !now->data[i].met;
}

bitnet_status bitnet_baseline_compare(const char *baseline, size_t n_baseline, const char *now,
                                      size_t n_now, double max_regress, bitnet_regression_fn each,
                                      void *user, bitnet_baseline_result *result, bitnet_error *err)
{
    rows a = {0}, b = {0};
    bitnet_baseline_result sum = {0};
    if ((n_baseline && !baseline) || (n_now && !now) || !(max_regress >= 0 && max_regress < 1))
        return bnet_fail(err, BITNET_ARGUMENT,
                         "baseline: both texts must be given and max_regress be in [0, 1)");
    bitnet_status st = read_rows("baseline", baseline, n_baseline, &a, err);
    if (st == BITNET_OK)
        st = read_rows("new results", now, n_now, &b, err);
    if (st == BITNET_OK && a.n == 0)
        st = bnet_fail(err, BITNET_ARGUMENT, "baseline: it has no rows to compare with");
    if (st == BITNET_OK) {
        compare(&a, &b, max_regress, each, user, &sum);
        if (result)
            *result = sum;
        if (sum.n_regressed || sum.n_missing)
            st = bnet_fail(err, BITNET_PERFORMANCE,
                           "%zu of %zu rows are more than %g %% worse than the baseline, %zu are "
                           "missing",
                           sum.n_regressed, sum.n_compared, 100 * max_regress, sum.n_missing);
    }
    bnet_free(a.data);
    bnet_free(b.data);
    return st;
}
