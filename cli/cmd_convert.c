/* cmd_convert.c - `bitnet convert`: a checkpoint in, a GGUF file out. Ctrl-C,
 * a full disk and a vanished input leave nothing half-written behind. */
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "convert/convert.h"

typedef struct convert_state {
    const args *args;
    const char *input, *output;
    double start_ms;
} convert_state;

/* ---- arguments ---- */

static int find_paths(convert_state *s)
{
    const args *a = s->args;
    size_t next = 0;
    s->input = opt_text(a, OPT_INPUT);
    s->output = opt_text(a, OPT_CONVERT_OUT);
    if (!s->input && next < a->n_words)
        s->input = a->words[next++];
    if (!s->output && next < a->n_words)
        s->output = a->words[next++];
    if (!s->input || !s->output)
        return fail(EXIT_USAGE,
                    "convert needs an input and an output: bitnet convert INPUT OUT.gguf");
    if (next < a->n_words)
        return fail(EXIT_USAGE, "convert: unexpected argument '%s'", a->words[next]);
    return EXIT_OK;
}

static int check_output(const convert_state *s)
{
    struct stat st;
    if (stat(s->output, &st) != 0)
        return output_try("convert", s->output);
    if (S_ISDIR(st.st_mode))
        return fail(EXIT_USAGE, "%s: the output is a directory; name a file", s->output);
    if (!S_ISREG(st.st_mode))
        return fail(EXIT_USAGE, "%s: the output is not a regular file", s->output);
    if (!opt_on(s->args, OPT_CLOBBER))
        return fail(EXIT_USAGE, "%s: exists, and --no-clobber was given", s->output);
    return output_try("convert", s->output);
}

/* A handler that ends the program removes it. */
static void on_temp(void *unused, const char *path)
{
    (void)unused;
    signals_name_temp(path);
}

/* ---- converting ---- */

static bnet_type type_named(const args *a, option_key k)
{
    return bnet_type_by_name(opt_text(a, k))->type; /* the table of options lists known names */
}

static int convert(convert_state *s)
{
    bnet_convert_options o;
    bitnet_error err = {0};
    bnet_convert_options_init(&o);
    o.weight_type = type_named(s->args, OPT_TYPE);
    o.embedding_type = type_named(s->args, OPT_EMBEDDING);
    o.tokenizer = opt_text(s->args, OPT_TOKENIZER);
    o.log = (bnet_log){log_sink, (void *)(uintptr_t)s->args};
    o.on_progress = progress_step;
    o.on_temp = on_temp;
    progress_begin(UNIT_BYTES, "writing %s", file_name(s->output));
    bitnet_status st = bnet_convert(s->input, s->output, &o, &err);
    progress_end();
    signals_name_temp(NULL);
    if (st == BITNET_OK)
        return EXIT_OK;
    if (st == BITNET_CANCELLED && interrupted())
        return fail(interrupted(), "interrupted: %s was not written", s->output);
    return fail_with(&err);
}

/* --verify: the output read back, every tensor looked at. */
static int verify(const convert_state *s, bitnet_inspect *file)
{
    bitnet_error err = {0};
    bitnet_tensor_stats t;
    bitnet_inspect_tensor info;
    size_t n_bad = 0, n = bitnet_inspect_n_tensors(file);
    progress_begin(UNIT_NONE, "reading %s again", file_name(s->output));
    for (size_t i = 0; i < n; i++) {
        if (!progress_step(NULL, i, n))
            return interrupted();
        if (bitnet_inspect_stats(file, i, &t, &err) != BITNET_OK)
            return fail_with(&err);
        if (!t.suspicious[0] || !bitnet_inspect_tensor_at(file, i, &info))
            continue;
        n_bad++;
        warn("%s: tensor %s: %s", s->output, info.name, t.suspicious);
    }
    progress_end();
    return n_bad ? fail(EXIT_SUSPICIOUS, "%s: %zu tensor%s suspicious", s->output, n_bad,
                        n_bad == 1 ? " looks" : "s look")
                 : EXIT_OK;
}

static void tell(const convert_state *s, bitnet_inspect *file)
{
    uint64_t n_bytes = bitnet_inspect_file_bytes(file), n_elems = 0, n_data = 0;
    bitnet_inspect_tensor t;
    size_t n = bitnet_inspect_n_tensors(file);
    for (size_t i = 0; i < n; i++)
        if (bitnet_inspect_tensor_at(file, i, &t)) {
            n_elems += t.n_elems;
            n_data += t.n_bytes;
        }
    double bits = n_elems ? (double)n_data * 8 / (double)n_elems : 0, ms = now_ms() - s->start_ms;
    if (opt_json(s->args))
        j_print(j_object("input:t output:t type:t embedding:t n_tensors:n n_params:n "
                         "n_file_bytes:n bits_per_weight:f elapsed_ms:f",
                         s->input, s->output, opt_text(s->args, OPT_TYPE),
                         opt_text(s->args, OPT_EMBEDDING), n, n_elems, n_bytes, bits, ms));
    else if (!opt_on(s->args, OPT_QUIET))
        out_printf("%s: %zu tensor%s, %llu weights, %.3f bits per weight, %llu bytes, %.1f s\n",
                   s->output, n, plural(n), (unsigned long long)n_elems, bits,
                   (unsigned long long)n_bytes, ms / 1e3);
}

static int look_at_output(const convert_state *s)
{
    bitnet_inspect *file = NULL;
    bitnet_error err = {0};
    signals_name_model(s->output);
    if (bitnet_inspect_open(s->output, &file, &err) != BITNET_OK)
        return fail_with(&err);
    tell(s, file);
    int rc = opt_on(s->args, OPT_VERIFY) ? verify(s, file) : EXIT_OK;
    bitnet_inspect_close(file);
    return rc;
}

int cmd_convert(args *a)
{
    convert_state s = {.args = a, .start_ms = now_ms()};
    int rc = find_paths(&s);
    rc = rc ? rc : check_output(&s);
    if (rc)
        return rc;
    signals_name_model(s.input);
    rc = convert(&s);
    return rc ? rc : look_at_output(&s);
}
