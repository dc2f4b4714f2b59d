/* registry_tuning.c - measured choices and the file that keeps them. A choice is a word for one
 * class of shapes; it never overrides compatibility, and a file from another machine or version is
 * not believed. */
#include "ops/registry_impl.h"

#include "base/file.h"
#include "format/json_file.h"
#include "ops/json_text.h"

#include <unistd.h>

enum { FILE_MAX_BYTES = 16 << 20, M_LARGEST = 512 };

static void put_gpu(const bnet_device_status *s, int index, bnet_str *out)
{
    const bnet_gpu *g = &s->gpus[index];
    bnet_str_addf(out, " / %s, %llu bytes, %d multiprocessors / driver %s", g->name,
                  (unsigned long long)g->total_memory, g->multiprocessors, s->version);
}

void bnet_tuning_key(const bnet_capabilities *c, const bnet_devices *d, int index, bnet_str *out)
{
    const bnet_device_status *s = &d->kind[c->device];
    bnet_str_addf(out, "%s / %s / features 0x%x", bnet_device_name(c->device), d->cpu.brand,
                  d->cpu.features);
    if (c->device != BNET_DEV_CPU && index >= 0 && index < s->n_gpus)
        put_gpu(s, index, out);
    if (*c->level)
        bnet_str_addf(out, " / %s", c->level);
    bnet_str_addf(out, " / bitnet %s", BITNET_VERSION);
}

uint64_t bnet_tuning_m(uint64_t m)
{
    if (m <= 2)
        return m;
    return m >= M_LARGEST ? M_LARGEST : UINT64_C(1) << (64 - __builtin_clzll(m - 1));
}

/* ---- choices in memory ---- */

static size_t choice_bucket(const registry_key *key, uint64_t m, uint64_t n, uint64_t k)
{
    return registry_hash_shape(key->id, m, n, k) % CHOICE_BUCKETS;
}

static registry_choice *find_choice(const bnet_registry *r, const registry_key *key, uint64_t m,
                                    uint64_t n, uint64_t k)
{
    registry_choice *c =
        atomic_load_explicit(&r->choices[choice_bucket(key, m, n, k)], memory_order_acquire);
    for (; c; c = atomic_load_explicit(&c->next, memory_order_acquire))
        if (c->key == key && c->m == m && c->n == n && c->k == k)
            return c;
    return NULL;
}

const bnet_kernel_record *bnet_registry_choice(const bnet_registry *r, const registry_key *key,
                                               const bnet_capabilities *c,
                                               const bnet_kernel_query *q)
{
    const registry_choice *ch = find_choice(r, key, bnet_tuning_m(q->m), q->n, q->k);
    if (!ch)
        return NULL;
    const bnet_kernel_record *k = &atomic_load_explicit(&ch->kernel, memory_order_acquire)->rec;
    return bnet_registry_veto(k, c, q) == VETO_NONE ? k : NULL;
}

static bitnet_status tune_locked(bnet_registry *r, const registry_node *kernel, uint64_t m,
                                 uint64_t n, uint64_t k, bitnet_error *err)
{
    registry_choice *c = find_choice(r, kernel->key, m, n, k);
    if (!c) {
        if (atomic_load(&r->n_choices) == CHOICES_MAX)
            return bnet_fail(err, BITNET_MEMORY, "tuning: %d choices are the most a registry keeps",
                             CHOICES_MAX);
        c = bnet_calloc(1, sizeof *c);
        if (!c)
            return bnet_no_memory(err, "tuning choice");
        c->key = kernel->key;
        c->m = m;
        c->n = n;
        c->k = k;
        _Atomic(registry_choice *) *bucket = &r->choices[choice_bucket(kernel->key, m, n, k)];
        atomic_store(&c->kernel, kernel);
        atomic_store(&c->next, atomic_load(bucket));
        atomic_store_explicit(bucket, c, memory_order_release);
        atomic_fetch_add(&r->n_choices, 1);
    } else {
        atomic_store_explicit(&c->kernel, kernel, memory_order_release);
    }
    atomic_fetch_add(&r->generation, 1);
    return BITNET_OK;
}

static bitnet_status wrong_key(const bnet_kernel_record *k, const char *op, const char *format,
                               const char *dtype, bitnet_error *err)
{
    char quoted[3][96];
    return bnet_fail(err, BITNET_ARGUMENT,
                     "tuning: kernel %s is for (%s, %s, %s), not for (%s, %s, %s)", k->id,
                     bnet_op_name(k->op), bnet_format_name(k->format), bnet_dtype_name(k->dtype),
                     bnet_quote(op, strlen(op), quoted[0], sizeof quoted[0]),
                     bnet_quote(format, strlen(format), quoted[1], sizeof quoted[1]),
                     bnet_quote(dtype, strlen(dtype), quoted[2], sizeof quoted[2]));
}

bitnet_status bnet_registry_tune(bnet_registry *r, const bnet_kernel_query *q,
                                 const char *kernel_id, bitnet_error *err)
{
    const bnet_kernel_record *k = bnet_registry_find(r, kernel_id);
    char quoted[96];
    if (!k)
        return bnet_fail(err, BITNET_ARGUMENT, "tuning: no kernel is called '%s'",
                         bnet_quote(kernel_id, strlen(kernel_id), quoted, sizeof quoted));
    if (!registry_same_key(k, q))
        return wrong_key(k, bnet_op_name(q->op), bnet_format_name(q->format),
                         bnet_dtype_name(q->dtype), err);
    const registry_node *node = atomic_load(&r->records[k->slot]);
    pthread_mutex_lock(&r->lock);
    bitnet_status st = tune_locked(r, node, bnet_tuning_m(q->m), q->n, q->k, err);
    pthread_mutex_unlock(&r->lock);
    return st;
}

bool bnet_registry_tuned(const bnet_registry *r, const bnet_capabilities *c,
                         const bnet_kernel_query *q)
{
    const registry_key *key = registry_find_key(r, c->device, q->op, q->format, q->dtype);
    bnet_kernel_query one = *q;
    if (key && q->m == 0 && bnet_registry_choice(r, key, c, q))
        return true;
    for (one.m = 1; key && one.m <= 512; one.m *= 2)
        if (bnet_registry_choice(r, key, c, &one))
            return true;
    return false;
}

size_t bnet_registry_choices(const bnet_registry *r)
{
    return atomic_load_explicit(&r->n_choices, memory_order_acquire);
}

void bnet_registry_free_choices(bnet_registry *r)
{
    for (int b = 0; b < CHOICE_BUCKETS; b++)
        for (registry_choice *c = atomic_load(&r->choices[b]), *next; c; c = next) {
            next = atomic_load(&c->next);
            bnet_free(c);
        }
}

/* ---- the file ---- */

static void put_choice(bnet_str *s, const registry_choice *c)
{
    const bnet_kernel_record *k = &atomic_load(&c->kernel)->rec;
    bnet_str_puts(s, "    {");
    bnet_json_member(s, "op", bnet_op_name(k->op), ", ");
    bnet_json_member(s, "format", bnet_format_name(k->format), ", ");
    bnet_json_member(s, "dtype", bnet_dtype_name(k->dtype), ", ");
    bnet_str_addf(s, "\"m\": %llu, \"n\": %llu, \"k\": %llu, ", (unsigned long long)c->m,
                  (unsigned long long)c->n, (unsigned long long)c->k);
    bnet_json_member(s, "kernel", k->id, "}");
}

bitnet_status bnet_registry_save_tuning(const bnet_registry *r, const char *key, const char *path,
                                        bitnet_error *err)
{
    bnet_str s = {0};
    bnet_str_puts(&s, "{\n  ");
    bnet_json_member(&s, "key", key, ",\n  ");
    bnet_json_member(&s, "version", BITNET_VERSION, ",\n  \"choices\": [");
    const char *between = "\n";
    for (int b = 0; b < CHOICE_BUCKETS; b++)
        for (const registry_choice *c = atomic_load(&r->choices[b]); c; c = atomic_load(&c->next)) {
            bnet_str_puts(&s, between);
            put_choice(&s, c);
            between = ",\n";
        }
    bnet_str_puts(&s, "\n  ]\n}\n");
    bnet_writer *w = NULL;
    bitnet_status st = s.failed ? bnet_no_memory(err, path) : bnet_writer_open(path, &w, err);
    if (st == BITNET_OK) {
        st = bnet_writer_write(w, s.data, s.n, err);
        if (st == BITNET_OK)
            st = bnet_writer_commit(w, err);
        else
            bnet_writer_abort(w);
    }
    bnet_str_free(&s);
    return st;
}

typedef struct tuning_file {
    const char *path;
    bitnet_error *err;
} tuning_file;

/* A text member of a choice or of the file, NULL with the message set if it is not one. */
static const char *text_of(const tuning_file *f, const json_t *o, const char *name, size_t i)
{
    const char *s = json_string_value(json_object_get(o, name));
    if (!s)
        bnet_fail(f->err, BITNET_ARGUMENT, "%s: choices[%zu].%s: a string is expected", f->path, i,
                  name);
    return s;
}

static bool number_of(const tuning_file *f, const json_t *o, const char *name, size_t i,
                      uint64_t *out)
{
    const json_t *v = json_object_get(o, name);
    if (!json_is_integer(v) || json_integer_value(v) < 0) {
        bnet_fail(f->err, BITNET_ARGUMENT,
                  "%s: choices[%zu].%s: a whole number from 0 on is expected", f->path, i, name);
        return false;
    }
    *out = (uint64_t)json_integer_value(v);
    return true;
}

static bool read_choice(const tuning_file *f, const json_t *o, size_t i, bitnet_kernel_query *q,
                        const char **kernel)
{
    if (!json_is_object(o)) {
        bnet_fail(f->err, BITNET_ARGUMENT, "%s: choices[%zu]: an object is expected", f->path, i);
        return false;
    }
    return (q->op = text_of(f, o, "op", i)) && (q->format = text_of(f, o, "format", i)) &&
           (q->dtype = text_of(f, o, "dtype", i)) && (*kernel = text_of(f, o, "kernel", i)) &&
           number_of(f, o, "m", i, &q->m) && number_of(f, o, "n", i, &q->n) &&
           number_of(f, o, "k", i, &q->k);
}

static bitnet_status take_choice(bnet_registry *r, const bnet_kernel_record *k,
                                 const bitnet_kernel_query *names, bitnet_error *err)
{
    bnet_kernel_query q;
    if (bnet_query_read(names, k->device, &q, NULL) != BITNET_OK)
        return wrong_key(k, names->op, names->format, names->dtype, err);
    return bnet_registry_tune(r, &q, k->id, err);
}

/* All of the file is read before the first choice counts. A kernel nobody has registered (out of
 * tree, or renamed) is passed over. */
static bitnet_status take_choices(bnet_registry *r, const tuning_file *f, const json_t *choices,
                                  const bnet_log *log)
{
    size_t n = json_array_size(choices);
    bitnet_status st = BITNET_OK;
    char quoted[96];
    for (int apply = 0; apply < 2; apply++)
        for (size_t i = 0; st == BITNET_OK && i < n; i++) {
            bitnet_kernel_query q = {0};
            const char *kernel;
            if (!read_choice(f, json_array_get(choices, i), i, &q, &kernel))
                return BITNET_ARGUMENT;
            if (!apply)
                continue;
            const bnet_kernel_record *k = bnet_registry_find(r, kernel);
            if (k)
                st = take_choice(r, k, &q, f->err);
            else
                bnet_logf(log, BITNET_LOG_INFO, "tuning", "%s: choices[%zu]: no kernel '%s' here",
                          f->path, i, bnet_quote(kernel, strlen(kernel), quoted, sizeof quoted));
        }
    return st == BITNET_OK ? st : bnet_wrap(f->err, st, "%s", f->path);
}

/* Why the file is ignored: it is of another machine, or of this one and another version. Its texts
 * are not trusted. */
static void tell_stale(const tuning_file *f, const char *made_key, const char *made_version,
                       const char *key, const bnet_log *log)
{
    char made[256], ours[256];
    if (strcmp(made_key, key) != 0)
        bnet_logf(log, BITNET_LOG_WARN, "tuning",
                  "%s: made for '%s', this is '%s': ignored, run tune again", f->path,
                  bnet_quote(made_key, strlen(made_key), made, sizeof made),
                  bnet_quote(key, strlen(key), ours, sizeof ours));
    else
        bnet_logf(log, BITNET_LOG_WARN, "tuning",
                  "%s: made by version '%s', this is version '%s': ignored, run tune again",
                  f->path, bnet_quote(made_version, strlen(made_version), made, sizeof made),
                  BITNET_VERSION);
}

static bitnet_status read_document(bnet_registry *r, const tuning_file *f, const json_t *root,
                                   const char *key, const bnet_log *log, bool *used)
{
    const char *k = json_string_value(json_object_get(root, "key"));
    const char *version = json_string_value(json_object_get(root, "version"));
    const json_t *choices = json_object_get(root, "choices");
    if (!k || !version || !json_is_array(choices))
        return bnet_fail(f->err, BITNET_ARGUMENT,
                         "%s: %s is expected: this is no tuning cache, remove it or run tune again",
                         f->path,
                         !k         ? "a string \"key\""
                         : !version ? "a string \"version\""
                                    : "an array \"choices\"");
    if (strcmp(k, key) != 0 || strcmp(version, BITNET_VERSION) != 0) {
        tell_stale(f, k, version, key, log);
        return BITNET_OK;
    }
    bitnet_status st = take_choices(r, f, choices, log);
    *used = st == BITNET_OK;
    return st;
}

static bitnet_status parse(bnet_registry *r, const tuning_file *f, const char *data, size_t n,
                           const char *key, const bnet_log *log, bool *used)
{
    json_t *root;
    char why[256];
    bitnet_status st = bnet_json_load(data, n, f->path, &root, why, sizeof why, f->err);
    if (st != BITNET_OK)
        return st;
    if (!root)
        return bnet_fail(f->err, BITNET_ARGUMENT, "%s: cannot be read as JSON: %s", f->path, why);
    st = read_document(r, f, root, key, log, used);
    json_decref(root);
    return st;
}

bitnet_status bnet_registry_load_tuning(bnet_registry *r, const char *key, const char *path,
                                        const bnet_log *log, bool *used, bitnet_error *err)
{
    char *data;
    size_t n;
    *used = false;
    if (access(path, F_OK) != 0) {
        bnet_logf(log, BITNET_LOG_INFO, "tuning", "%s does not exist: no tuning", path);
        return BITNET_OK;
    }
    bitnet_status st = bnet_read_file(path, FILE_MAX_BYTES, &data, &n, err);
    if (st != BITNET_OK)
        return st;
    tuning_file f = {path, err};
    st = parse(r, &f, data, n, key, log, used);
    bnet_free(data);
    return st;
}
