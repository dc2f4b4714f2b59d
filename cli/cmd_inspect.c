/* cmd_inspect.c - `bitnet inspect`: what is inside a GGUF file and whether it looks sound. */
#include "cli.h"

typedef struct type_sum {
    const char *type;
    size_t n_tensors;
    uint64_t n_elems, n_bytes;
} type_sum;

typedef struct inspect_state {
    const args *args;
    char *path;
    bitnet_inspect *file;
    char sha256[65];
    bitnet_tensor_stats *stats; /* [n_tensors]; NULL: --no-stats */
    size_t n_tensors, n_suspicious;
    type_sum *sums;
    size_t n_sums;
    uint64_t n_elems, n_bytes;
    char *template_text; /* NULL: there is nothing to tell */
    char form[32];
} inspect_state;

/* ---- gathering ---- */

static void add_to_sums(inspect_state *s, const bitnet_inspect_tensor *t)
{
    size_t i = 0;
    while (i < s->n_sums && strcmp(s->sums[i].type, t->type) != 0)
        i++;
    if (i == s->n_sums) {
        s->sums = xrealloc(s->sums, (s->n_sums + 1) * sizeof *s->sums);
        s->sums[s->n_sums++] = (type_sum){.type = t->type};
    }
    s->sums[i].n_tensors++;
    s->sums[i].n_elems += t->n_elems;
    s->sums[i].n_bytes += t->n_bytes;
    s->n_elems += t->n_elems;
    s->n_bytes += t->n_bytes;
}

static int gather_stats(inspect_state *s)
{
    bitnet_error err = {0};
    bitnet_inspect_tensor t;
    uint64_t n_read = 0;
    progress_begin(UNIT_BYTES, "reading %s", file_name(s->path));
    s->stats = xmalloc((s->n_tensors + 1) * sizeof *s->stats);
    for (size_t i = 0; i < s->n_tensors; i++) {
        if (bitnet_inspect_stats(s->file, i, &s->stats[i], &err) != BITNET_OK)
            return fail_with(&err);
        s->n_suspicious += s->stats[i].suspicious[0] != '\0';
        n_read += bitnet_inspect_tensor_at(s->file, i, &t) ? t.n_bytes : 0;
        if (!progress_step(NULL, n_read, s->n_bytes))
            return interrupted();
    }
    progress_end();
    return EXIT_OK;
}

static int gather(inspect_state *s)
{
    bitnet_error err = {0};
    bitnet_inspect_tensor t;
    signals_name_model(s->path);
    if (bitnet_inspect_open(s->path, &s->file, &err) != BITNET_OK)
        return fail_with(&err);
    s->n_tensors = bitnet_inspect_n_tensors(s->file);
    for (size_t i = 0; i < s->n_tensors; i++)
        if (bitnet_inspect_tensor_at(s->file, i, &t))
            add_to_sums(s, &t);
    progress_begin(UNIT_NONE, "computing the checksum of %s", file_name(s->path));
    if (opt_on(s->args, OPT_CHECKSUM) && bitnet_file_sha256(s->path, s->sha256, &err) != BITNET_OK)
        return fail_with(&err);
    progress_end();
    return opt_on(s->args, OPT_STATS) ? gather_stats(s) : EXIT_OK;
}

/* What renders conversations, for people; *form: its name. NULL: no tokenizer of the file can be
 * read, or there is none. */
static char *template_line(const bitnet_engine *e, char form[32])
{
    const bitnet_model_info *i = bitnet_engine_model(e);
    bitnet_chat_features f;
    bitnet_chat_features_init(&f);
    if (bitnet_chat_features_get(e, NULL, &f, NULL) != BITNET_OK || !f.name[0])
        return NULL;
    snprintf(form, 32, "%s", f.name);
    if (i->template_match == BITNET_TEMPLATE_ABSENT)
        return xformat("none in the file; the built-in form '%s' is used", f.name);
    if (i->template_match == BITNET_TEMPLATE_GUESSED)
        return xformat("the file's own cannot be rendered (%s); the built-in form '%s' is used",
                       f.problem, f.name);
    return strcmp(f.name, "file") == 0
               ? xformat("the file's own")
               : xformat("the file's own, as the built-in form '%s' writes it", f.name);
}

/* The vocabulary alone is opened, and a file that has none tells nothing. */
static char *find_template(const inspect_state *s, char form[32])
{
    bitnet_runtime_options r;
    bitnet_engine_options o;
    bitnet_runtime *runtime = NULL;
    bitnet_engine *e = NULL;
    char *line = NULL;
    bitnet_runtime_options_init(&r);
    r.n_threads = 1;
    r.device = "cpu";
    bitnet_engine_options_init(&o);
    o.vocab_only = true;
    form[0] = '\0';
    if (bitnet_runtime_open(&r, &runtime, NULL) == BITNET_OK &&
        bitnet_engine_open(runtime, s->path, &o, &e, NULL) == BITNET_OK)
        line = template_line(e, form);
    bitnet_engine_close(e);
    bitnet_runtime_close(runtime);
    return line;
}

static double bits_per_weight(uint64_t n_bytes, uint64_t n_elems)
{
    return n_elems ? (double)n_bytes * 8 / (double)n_elems : 0;
}

static size_t n_kv_shown(const inspect_state *s)
{
    size_t n = bitnet_inspect_n_kv(s->file), limit = (size_t)opt_int(s->args, OPT_KV_LIMIT);
    return limit && limit < n ? limit : n;
}

/* ---- JSON ---- */

static json_t *stats_json(const bitnet_tensor_stats *t)
{
    json_t *j = j_object("min:f max:f mean:f rms:f n_zero:n n_nan:n n_inf:n", (double)t->min,
                         (double)t->max, t->mean, t->rms, t->n_zero, t->n_nan, t->n_inf);
    if (t->ternary)
        j_add(j, "n_minus:n n_plus:n n_invalid:n scale:f", t->n_minus, t->n_plus, t->n_invalid,
              (double)t->scale);
    return j;
}

static json_t *tensor_json(inspect_state *s, size_t i)
{
    bitnet_inspect_tensor t;
    json_t *dims = json_array();
    if (!bitnet_inspect_tensor_at(s->file, i, &t))
        return dims;
    for (uint32_t d = 0; d < t.n_dims && d < 4; d++)
        json_array_append_new(dims, json_integer((json_int_t)t.dims[d]));
    json_t *j = j_object("name:t type:t shape:j n_elems:n n_bytes:n offset:n", t.name, t.type, dims,
                         t.n_elems, t.n_bytes, t.offset);
    if (s->stats)
        j_add(j, "stats:j suspicious:t", stats_json(&s->stats[i]),
              s->stats[i].suspicious[0] ? s->stats[i].suspicious : NULL);
    return j;
}

static json_t *metadata_json(inspect_state *s)
{
    json_t *list = json_array();
    bitnet_inspect_kv kv;
    for (size_t i = 0; i < n_kv_shown(s); i++)
        if (bitnet_inspect_kv_at(s->file, i, &kv))
            json_array_append_new(list,
                                  j_object("key:t type:t value:t", kv.key, kv.type, kv.value));
    return list;
}

static json_t *types_json(const inspect_state *s)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->n_sums; i++) {
        const type_sum *t = &s->sums[i];
        json_array_append_new(list, j_object("type:t n_tensors:n n_elems:n n_bytes:n "
                                             "bits_per_weight:f",
                                             t->type, t->n_tensors, t->n_elems, t->n_bytes,
                                             bits_per_weight(t->n_bytes, t->n_elems)));
    }
    return list;
}

static json_t *suspicious_json(inspect_state *s)
{
    json_t *list = json_array();
    bitnet_inspect_tensor t;
    for (size_t i = 0; s->stats && i < s->n_tensors; i++)
        if (s->stats[i].suspicious[0] && bitnet_inspect_tensor_at(s->file, i, &t))
            json_array_append_new(list,
                                  j_object("tensor:t reason:t", t.name, s->stats[i].suspicious));
    return list;
}

/* The tree is many times the file where that holds little but names: it is made only if wanted. */
static int report(inspect_state *s)
{
    if (!opt_report(s->args))
        return EXIT_OK;
    json_t *tensors = json_array();
    for (size_t i = 0; i < s->n_tensors; i++)
        json_array_append_new(tensors, tensor_json(s, i));
    return j_report(
        s->args,
        j_object("path:t gguf_version:i n_file_bytes:n sha256:t n_kv:n n_tensors:n n_params:n "
                 "bits_per_weight:f chat_template:t types:j metadata:j tensors:j suspicious:j "
                 "status:t",
                 s->path, (int)bitnet_inspect_version(s->file), bitnet_inspect_file_bytes(s->file),
                 s->sha256[0] ? s->sha256 : NULL, bitnet_inspect_n_kv(s->file), s->n_tensors,
                 s->n_elems, bits_per_weight(s->n_bytes, s->n_elems), s->form[0] ? s->form : NULL,
                 types_json(s), metadata_json(s), tensors, suspicious_json(s),
                 !s->stats         ? "unchecked"
                 : s->n_suspicious ? "warning"
                                   : "ok"));
}

/* ---- text ---- */

static void shape_text(const bitnet_inspect_tensor *t, char *buf, size_t cap)
{
    size_t n = 0;
    buf[0] = '\0';
    for (uint32_t d = 0; d < t->n_dims && d < 4 && n < cap; d++)
        n += (size_t)snprintf(buf + n, cap - n, "%s%llu", d ? " x " : "",
                              (unsigned long long)t->dims[d]);
}

static void print_head(const inspect_state *s, buffer *out)
{
    size_t n_kv = bitnet_inspect_n_kv(s->file);
    text_visible(out, s->path, strlen(s->path), false);
    text_printf(out, "\n  GGUF version %u, %llu bytes, %zu metadata entr%s, %zu tensor%s\n",
                bitnet_inspect_version(s->file),
                (unsigned long long)bitnet_inspect_file_bytes(s->file), n_kv,
                n_kv == 1 ? "y" : "ies", s->n_tensors, plural(s->n_tensors));
    text_printf(out, "  %llu weights, %.3f bits per weight\n", (unsigned long long)s->n_elems,
                bits_per_weight(s->n_bytes, s->n_elems));
    if (s->sha256[0])
        text_printf(out, "  sha256 %s\n", s->sha256);
    if (s->template_text) {
        text_puts(out, "  chat template: ");
        text_visible(out, s->template_text, strlen(s->template_text), false);
        text_puts(out, "\n");
    }
}

static void print_metadata(inspect_state *s, buffer *out)
{
    bitnet_inspect_kv kv;
    size_t n = n_kv_shown(s);
    text_puts(out, "\nMetadata\n");
    for (size_t i = 0; i < n; i++) {
        if (!bitnet_inspect_kv_at(s->file, i, &kv))
            continue;
        char *key = visible(kv.key);
        text_printf(out, "  %-44s %-16s ", key, kv.type);
        text_visible(out, kv.value, strlen(kv.value), false);
        text_puts(out, "\n");
        free(key);
    }
    if (n < bitnet_inspect_n_kv(s->file))
        text_printf(out, "  ... and %zu more\n", bitnet_inspect_n_kv(s->file) - n);
}

static void print_tensor(inspect_state *s, size_t i, buffer *out)
{
    bitnet_inspect_tensor t;
    char shape[96];
    if (!bitnet_inspect_tensor_at(s->file, i, &t))
        return;
    shape_text(&t, shape, sizeof shape);
    char *name = visible(t.name);
    text_printf(out, "  %-34s %-6s %-18s %12llu", name, t.type, shape,
                (unsigned long long)t.n_bytes);
    free(name);
    if (s->stats) {
        const bitnet_tensor_stats *x = &s->stats[i];
        text_printf(out, "  %10.4g %10.4g %10.4g", x->rms, x->min, x->max);
        if (x->suspicious[0])
            text_printf(out, "  SUSPICIOUS: %s", x->suspicious);
    }
    text_puts(out, "\n");
}

static void print_tensors(inspect_state *s, buffer *out)
{
    text_printf(out, "\nTensors\n  %-34s %-6s %-18s %12s", "name", "type", "shape", "bytes");
    if (s->stats)
        text_printf(out, "  %10s %10s %10s", "rms", "min", "max");
    text_puts(out, "\n");
    for (size_t i = 0; i < s->n_tensors; i++)
        print_tensor(s, i, out);
}

static void print_types(const inspect_state *s, buffer *out)
{
    text_puts(out, "\nTypes\n");
    for (size_t i = 0; i < s->n_sums; i++)
        text_printf(out,
                    "  %-8s %6zu tensor%-1s %14llu weights %14llu bytes %8.3f bits per weight\n",
                    s->sums[i].type, s->sums[i].n_tensors, plural(s->sums[i].n_tensors),
                    (unsigned long long)s->sums[i].n_elems, (unsigned long long)s->sums[i].n_bytes,
                    bits_per_weight(s->sums[i].n_bytes, s->sums[i].n_elems));
}

static void print_text(inspect_state *s)
{
    buffer out = {0};
    print_head(s, &out);
    print_metadata(s, &out);
    print_tensors(s, &out);
    print_types(s, &out);
    if (s->stats && s->n_suspicious)
        text_printf(&out, "\nStatus: %zu of %zu tensor%s look%s suspicious\n", s->n_suspicious,
                    s->n_tensors, plural(s->n_tensors), s->n_suspicious == 1 ? "s" : "");
    else
        text_puts(&out, s->stats ? "\nStatus: ok, no suspicious values\n"
                                 : "\nStatus: weights were not read\n");
    out_buffer(&out);
}

int cmd_inspect(args *a)
{
    inspect_state s = {.args = a};
    int rc = EXIT_OK;
    if (opt_on(a, OPT_STRICT) && !opt_on(a, OPT_STATS))
        return fail(EXIT_USAGE, "inspect: --strict needs the weights to be read; drop --no-stats");
    rc = model_path(a, &s.path);
    rc = rc ? rc : gather(&s);
    s.template_text = rc ? NULL : find_template(&s, s.form);
    rc = rc ? rc : report(&s);
    if (!rc && !opt_json(a))
        print_text(&s);
    if (!rc && opt_on(a, OPT_STRICT) && s.n_suspicious)
        rc = fail(EXIT_SUSPICIOUS, "%s: %zu tensor%s suspicious", s.path, s.n_suspicious,
                  s.n_suspicious == 1 ? " looks" : "s look");
    bitnet_inspect_close(s.file);
    free(s.template_text);
    free(s.stats);
    free(s.sums);
    free(s.path);
    return rc;
}
