/* cmd_score.c - `bitnet score`: how well the model predicts texts. Hides how a file is cut into
 * documents. */
#include <math.h>

#include "cli.h"

typedef struct document {
    const char *bytes; /* borrowed from the file's text */
    size_t n;
    size_t n_tokens, n_scored;
    double nll;
} document;

typedef struct score_state {
    const args *args;
    loaded m;
    buffer file;
    document *docs;
    size_t n_docs;
    size_t n_tokens, n_scored;
    size_t n_scored_docs, n_bytes_scored;
    double nll, tokenize_ms, score_ms;
} score_state;

/* ---- documents ---- */

static const char separator[] = "<|endoftext|>";

static void add_document(score_state *s, const char *bytes, size_t n)
{
    s->docs = xrealloc(s->docs, (s->n_docs + 1) * sizeof *s->docs);
    s->docs[s->n_docs++] = (document){.bytes = bytes, .n = n};
}

/* Length of the line at p without its newline; a carriage return before that belongs to it. */
static size_t line_length(const char *p, const char *end, const char **next)
{
    const char *nl = memchr(p, '\n', (size_t)(end - p));
    size_t n = (size_t)((nl ? nl : end) - p);
    *next = nl ? nl + 1 : end;
    return n && p[n - 1] == '\r' ? n - 1 : n;
}

static bool is_separator(const char *line, size_t n)
{
    return n == sizeof separator - 1 && memcmp(line, separator, n) == 0;
}

/* The text [p, q) between separators, without its last newline. */
static void add_between(score_state *s, const char *p, const char *q)
{
    size_t n = (size_t)(q - p);
    if (n && p[n - 1] == '\n')
        n -= n > 1 && p[n - 2] == '\r' ? 2 : 1;
    add_document(s, p, n);
}

/* At lines that are separators, if there are any, else at every line. A file may begin or end with
 * a separator: nothing is no document there. */
static void cut(score_state *s, const char *p, const char *end)
{
    const char *start = p, *next;
    bool separated = false;
    for (const char *q = p; q < end && !separated; q = next)
        separated = is_separator(q, line_length(q, end, &next));
    for (; p < end; p = next) {
        size_t n = line_length(p, end, &next);
        if (!separated)
            add_document(s, p, n);
        if (!separated || !is_separator(p, n))
            continue;
        if (p > start || s->n_docs)
            add_between(s, start, p);
        start = next;
    }
    if (separated && start < end)
        add_between(s, start, end);
}

static int read_documents(score_state *s)
{
    bool found, from_file;
    const args *a = s->args;
    const char *path = a->n_words ? a->words[0] : opt_text(a, OPT_SCORE_FILE);
    if (a->n_words && opt_given(a, OPT_SCORE_FILE))
        return fail(EXIT_USAGE, "score: the file is given twice");
    int rc = path ? read_input(path, &s->file)
                  : read_text(a, OPT_SCORE_FILE, OPT_SCORE_FILE, &s->file, &found, &from_file);
    if (rc)
        return rc;
    if (!path && !found)
        return fail(EXIT_USAGE,
                    "score: no texts; give a file with --file or texts on standard input");
    cut(s, s->file.data, s->file.data + s->file.n);
    return s->n_docs ? EXIT_OK
                     : fail(EXIT_USAGE, "score: %s holds no text", path ? path : "standard input");
}

/* ---- scoring ---- */

static int score_document(score_state *s, document *d)
{
    id_list v = {0};
    bitnet_error err = {0};
    bitnet_score_result r = {0};
    double start = now_ms();
    int rc = tokenize_text(&s->m, d->bytes, d->n, text_flags(s->args), &v);
    size_t most = (size_t)opt_int(s->args, OPT_SCORE_MAX);
    if (most && v.n > most)
        v.n = most;
    s->tokenize_ms += now_ms() - start;
    start = now_ms();
    d->n_tokens = v.n;
    if (!rc && v.n >= 2) {
        if (bitnet_score(s->m.session, v.data, v.n, (size_t)opt_int(s->args, OPT_STRIDE), &r,
                         &err) != BITNET_OK)
            rc = fail_with(&err);
        d->n_tokens = r.n_tokens;
        d->n_scored = r.n_scored;
        d->nll = r.nll;
    }
    s->score_ms += now_ms() - start;
    free(v.data);
    return rc;
}

/* How far it has come in bytes of text: tokens are counted text by text. */
static bool on_score(void *user, uint64_t done, uint64_t total)
{
    score_state *s = user;
    const document *d = &s->docs[s->n_scored_docs];
    uint64_t part = total ? (uint64_t)d->n * done / total : 0;
    return progress_step(NULL, s->n_bytes_scored + part, s->file.n) && !out_failed();
}

static void show_progress(const score_state *s)
{
    char rate[32];
    if (s->n_scored)
        progress_detail("%zu of %zu texts, perplexity %.3f, %s tok/s", s->n_scored_docs, s->n_docs,
                        exp(s->nll / (double)s->n_scored),
                        rate_text(per_second(s->n_tokens, s->score_ms), rate, sizeof rate));
}

static int score_all(score_state *s)
{
    int rc = EXIT_OK;
    bitnet_session_on_progress(s->m.session, on_score, s);
    progress_begin(UNIT_NONE, "scoring");
    for (size_t i = 0; !rc && i < s->n_docs; i++) {
        rc = score_document(s, &s->docs[i]);
        s->n_tokens += s->docs[i].n_tokens;
        s->n_scored += s->docs[i].n_scored;
        s->nll += s->docs[i].nll;
        s->n_scored_docs++;
        s->n_bytes_scored += s->docs[i].n;
        progress_step(NULL, s->n_bytes_scored, s->file.n);
        show_progress(s);
    }
    progress_end();
    return rc;
}

/* ---- report ---- */

/* Nothing was computed where nothing was predicted. */
static double tokens_per_second(const score_state *s)
{
    return s->n_scored ? per_second(s->n_tokens, s->score_ms) : 0;
}

static double mean_nll(const score_state *s)
{
    return s->n_scored ? s->nll / (double)s->n_scored : NAN;
}

static json_t *documents_json(const score_state *s)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->n_docs; i++)
        json_array_append_new(list, j_object("n_tokens:n n_scored:n nll:f", s->docs[i].n_tokens,
                                             s->docs[i].n_scored, s->docs[i].nll));
    return list;
}

static int report(const score_state *s)
{
    return j_report(s->args,
                    j_object("documents:j mean_nll:f ppl:f nll:f tokens:n predictions:n latency:j "
                             "throughput_tps:f context:n stride:n kernels:j model:t",
                             documents_json(s), mean_nll(s), exp(mean_nll(s)), s->nll, s->n_tokens,
                             s->n_scored,
                             j_object("load_ms:f tokenize_ms:f score_ms:f", s->m.load_ms,
                                      s->tokenize_ms, s->score_ms),
                             tokens_per_second(s), bitnet_session_context(s->m.session),
                             opt_int(s->args, OPT_STRIDE), kernels_json(&s->m), s->m.path));
}

static void print_table(const score_state *s)
{
    buffer out = {0};
    char rate[32], speed[48] = "";
    text_printf(&out, "%6s  %8s  %12s  %10s\n", "text", "tokens", "nll", "per token");
    for (size_t i = 0; i < s->n_docs; i++) {
        const document *d = &s->docs[i];
        text_printf(&out, "%6zu  %8zu  %12.4f  ", i + 1, d->n_tokens, d->nll);
        if (d->n_scored)
            text_printf(&out, "%10.4f\n", d->nll / (double)d->n_scored);
        else
            text_printf(&out, "%10s\n", "-");
    }
    if (s->n_scored)
        text_printf(&out, "mean nll %.6f, perplexity %.4f over %zu prediction%s\n", mean_nll(s),
                    exp(mean_nll(s)), s->n_scored, plural(s->n_scored));
    else
        text_puts(&out, "no text has two tokens: nothing was predicted\n");
    out_buffer(&out);
    if (s->n_scored)
        snprintf(speed, sizeof speed, "%s tok/s",
                 rate_text(tokens_per_second(s), rate, sizeof rate));
    note(s->args, "[%zu text%s, %zu token%s%s%s]\n", s->n_docs, plural(s->n_docs), s->n_tokens,
         plural(s->n_tokens), s->n_scored ? ", " : "", speed);
}

int cmd_score(args *a)
{
    score_state s = {.args = a};
    int rc = read_documents(&s);
    rc = rc ? rc : load_engine(&s.m, a, false);
    rc = rc ? rc : load_session(&s.m);
    rc = rc ? rc : score_all(&s);
    rc = rc ? rc : report(&s);
    if (!rc && !opt_json(a))
        print_table(&s);
    load_close(&s.m);
    free(s.docs);
    free_buffer(&s.file);
    return rc;
}
