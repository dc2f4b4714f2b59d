/* validate_pass.c - whole passes of a small ternary model on the device and, operation by
 * operation, on the reference, with the same tokens: a prompt, single steps, prompts of several
 * timelines, steps of them all. For kernels that exist only inside passes, and to see the others at
 * work there: a row for each whose count of calls rose.
 *
 * What is compared: logits, the best of them that a pass brings along, and the cache. Integers
 * cannot be seen inside a pass, but what they give can. The cache of layer 0 is the embedding
 * normed, quantised, multiplied and rotated: equal but where the last place of a norm moves a code
 * that stood on a rounding tie. At the first position of a timeline attention has nothing to weigh,
 * so the same holds of all layers and the logits: a code moved is less than 1 / 512 of the largest
 * value (127 * sqrt(256) / 2 makes 1 / 1000). Further on attention over halves moves values by
 * 2^-10, an eighth of a code, so that one code in ten moves in every later product; with random
 * weights, which damp nothing, that is up to 3 % of the largest logit (NVIDIA H200). */
#include "check/validate_pass.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/synthetic.h"
#include "model/kv.h"

#define MAX_FIRST   (1.0 / 512) /* of the largest value: layer 0, first positions */
#define MAX_LATER   0.05
#define BEST_VALUES 1e-4 /* one of the best logits, of the largest: sums in another order */

enum { CONTEXT = 128, PROMPT = 70, BATCH = 128, BEST = 8 };

/* ---- both sides ---- */

static bitnet_status open_side(pass_trial *t, int which)
{
    validation_run *r = t->r;
    pass_side *s = &t->side[which];
    bitnet_status st = which == 0 ? bnet_validate_open_device(r, r->runtime->registry, NULL, &s->be)
                                  : bnet_validate_open_reference(r, &s->be);
    if (st == BITNET_OK)
        st = bnet_model_open(t->gguf, s->be, BITNET_I2S_128, NULL, NULL, &s->model, r->err);
    if (st == BITNET_OK)
        st = bnet_workspace_open(s->model, BATCH, &s->ws, r->err);
    for (int i = 0; st == BITNET_OK && i < PASS_TIMELINES; i++)
        st = bnet_kv_open(s->model, CONTEXT, BITNET_KV_F16, &s->kv[i], r->err);
    return st;
}

static void close_side(pass_side *s)
{
    for (int i = 0; i < PASS_TIMELINES; i++)
        bnet_kv_close(s->kv[i]);
    bnet_workspace_close(s->ws);
    bnet_model_close(s->model);
    bnet_backend_close(s->be);
}

/* ---- comparing ---- */

static void wrong(finding *f, const char *what, int row, double got, double want)
{
    if (!f->wrong[0])
        snprintf(f->wrong, sizeof f->wrong, "%s, timeline %d: %.6g instead of %.6g", what, row, got,
                 want);
}

static size_t largest(const float *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

static void compare_logits(finding *f, int row, const float *a, const float *b, size_t n)
{
    double ab = 0, aa = 0, bb = 0, off = 0;
    size_t first = largest(a, n), want = largest(b, n);
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
        off = d > off || isnan(d) ? d : off;
    }
    double most = fabs((double)b[want]), cosine = ab / sqrt(aa * bb), share = off / most;
    f->cosine = cosine < f->cosine || isnan(cosine) ? cosine : f->cosine;
    f->logit = share > f->logit || isnan(share) ? share : f->logit;
    if (!(cosine >= 1 - f->bound * f->bound / 4))
        wrong(f, "cosine of the logits", row, cosine, 1);
    if (!(share <= f->bound))
        wrong(f, "largest difference of a logit", row, share, 0);
    if ((double)b[want] - (double)b[first] > 2 * f->bound * most)
        wrong(f, "the best token", row, (double)first, (double)want);
}

/* The best logits that a pass returns must be the best of all its logits, in whatever order the
 * head summed. A row that has such a list must give as many as were asked for: fewer is an error.
 */
static void compare_best(finding *f, int row, bnet_workspace *ws, const float *a, size_t n)
{
    bnet_top_want want = {.k = BEST};
    bnet_top top;
    double most = fabs((double)a[largest(a, n)]);
    if (row >= bnet_best_rows(ws))
        return;
    if (!bnet_best_top(ws, row, &want, &top)) {
        wrong(f, "best logits that came along", row, 0, BEST);
        return;
    }
    size_t better = 0;
    double least = INFINITY;
    for (size_t i = 0; i < top.n; i++) {
        bool known = top.ids[i] >= 0 && (size_t)top.ids[i] < n;
        double is = known ? (double)a[top.ids[i]] : NAN, d = fabs((double)top.logits[i] - is);
        if (!(d <= BEST_VALUES * most))
            wrong(f, "one of the best logits", row, (double)top.logits[i], is);
        least = fmin(least, (double)top.logits[i]);
    }
    for (size_t i = 0; i < n; i++)
        better += (double)a[i] > least + BEST_VALUES * most;
    if (top.n < BEST || better >= top.n)
        wrong(f, "logits among the best", row, (double)top.n, (double)better + 1);
}

static double cached_at(const uint8_t *part, size_t i)
{
    return (double)bnet_f16_to_f32(bnet_u16(part + 2 * i));
}

/* Keys and values of one position and head: one part of a block of either side. */
static void compare_position(finding *f, int layer, int timeline, const uint8_t *a,
                             const uint8_t *b, size_t n)
{
    double most = 0, off = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs(cached_at(a, i) - cached_at(b, i));
        most = fmax(most, fabs(cached_at(b, i)));
        off = d > off || isnan(d) ? d : off;
    }
    double share = off > 0 || isnan(off) ? off / fmax(most, 1e-6) : 0;
    double *worst = layer == 0 ? &f->first : &f->cached;
    *worst = share > *worst || isnan(share) ? share : *worst;
    if (!(share <= (layer == 0 ? MAX_FIRST : f->bound)))
        wrong(f, layer == 0 ? "cache of layer 0" : "cache of layer 1", timeline, share, 0);
}

typedef struct block_of {
    int timeline, layer, block;
    size_t n_bytes;
    uint8_t *bytes[2]; /* of the device, of the reference */
} block_of;

static void get(const pass_trial *t, int side, const block_of *b)
{
    const bnet_kv *kv = t->side[side].kv[b->timeline];
    bnet_op_kv_get(t->side[side].be, kv->blocks->store, b->layer, kv->table[b->block],
                   b->bytes[side]);
}

/* Compares the positions that these passes wrote. */
static void compare_block(pass_trial *t, const block_of *b)
{
    const bnet_kv_shape *s = &t->side[1].kv[0]->blocks->shape;
    size_t hd = (size_t)s->head_dim, part = b->n_bytes / 2 / (size_t)s->n_kv_heads;
    int zero = b->block * BNET_KV_BLOCK, first = BNET_MAX(t->n_before[b->timeline] - zero, 0);
    int end = BNET_MIN(t->n_pos[b->timeline] - zero, BNET_KV_BLOCK);
    get(t, 0, b);
    get(t, 1, b);
    for (size_t p = 0; p < 2 * (size_t)s->n_kv_heads; p++)
        for (int pos = first; pos < end; pos++) {
            size_t at = p * part + (size_t)pos * hd * 2;
            compare_position(&t->f, b->layer, b->timeline, b->bytes[0] + at, b->bytes[1] + at, hd);
        }
}

/* The reference continues from what the device wrote, so that no difference counts twice. */
static void hand_over(pass_trial *t, const block_of *b)
{
    const bnet_kv *kv = t->side[1].kv[b->timeline];
    get(t, 0, b);
    bnet_op_kv_put(t->side[1].be, kv->blocks->store, b->layer, kv->table[b->block], b->bytes[0]);
}

/* Every block of n timelines from `first` on. */
static bitnet_status each_block(pass_trial *t, int first, int n,
                                void (*act)(pass_trial *t, const block_of *b))
{
    const bnet_kv_shape *s = &t->side[1].kv[0]->blocks->shape;
    block_of b = {.n_bytes = (size_t)bnet_kv_layer_bytes(s)};
    b.bytes[0] = bnet_alloc(b.n_bytes);
    b.bytes[1] = bnet_alloc(b.n_bytes);
    bool ok = b.bytes[0] && b.bytes[1];
    for (b.timeline = first; ok && b.timeline < first + n; b.timeline++)
        for (b.layer = 0; b.layer < s->n_layers; b.layer++)
            for (b.block = 0; b.block * BNET_KV_BLOCK < t->n_pos[b.timeline]; b.block++)
                act(t, &b);
    bnet_free(b.bytes[0]);
    bnet_free(b.bytes[1]);
    return ok ? bnet_op_sync(t->side[0].be, t->r->err) : bnet_no_memory(t->r->err, "validation");
}

/* ---- passes ---- */

/* The next tokens of n timelines from `first` on, each[i] of them, through both sides. */
static bitnet_status pass(pass_trial *t, int first, int n, const int *each)
{
    int32_t ids[BATCH], pos[BATCH], seq[BATCH], rows[PASS_TIMELINES];
    size_t n_vocab = (size_t)bnet_model_hparams(t->side[0].model)->n_vocab;
    int n_tokens = 0;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < each[i]; j++, n_tokens++) {
            ids[n_tokens] = (int32_t)(bnet_case_random(&t->seed) % n_vocab);
            pos[n_tokens] = t->n_pos[first + i]++;
            seq[n_tokens] = i;
        }
        rows[i] = n_tokens - 1;
    }
    const float *logits[2] = {NULL, NULL};
    bitnet_status st = bnet_validate_poll(t->r);
    for (int i = 0; st == BITNET_OK && i < 2; i++) {
        pass_side *s = &t->side[i];
        bnet_batch b = {n_tokens, ids, pos, seq, s->kv + first, n, rows, n, false, NULL, NULL};
        st = bnet_forward(s->ws, &b, t->r->err);
        if (st == BITNET_OK)
            st = bnet_head(s->ws, 0, n, &logits[i], t->r->err);
    }
    for (int i = 0; st == BITNET_OK && i < n; i++) {
        const float *a = logits[0] + (size_t)i * n_vocab;
        compare_logits(&t->f, first + i, a, logits[1] + (size_t)i * n_vocab, n_vocab);
        compare_best(&t->f, i, t->side[0].ws, a, n_vocab);
    }
    return st;
}

static const struct kind {
    const char *what;
    int first, n; /* timelines */
    int n_passes;
    int tokens; /* of the first timeline in a pass, one more of each that follows; 0: one of each */
    bool apart; /* each timeline in passes of its own */
    double bound;
} kinds[] = {
    {"first tokens one by one", 12, 8, 1, 0, true, MAX_FIRST},
    {"first tokens of 12 timelines", 20, 12, 1, 0, false, MAX_FIRST},
    {"first tokens of 4 timelines", 32, 4, 1, 0, false, MAX_FIRST},
    {"a prompt of 70 tokens", 0, 1, 1, PROMPT, false, MAX_LATER},
    {"8 steps of one token", 0, 1, 8, 0, false, MAX_LATER},
    {"prompts of 11 timelines", 1, 11, 1, 4, false, MAX_LATER},
    {"4 steps of 12 timelines", 0, 12, 4, 0, false, MAX_LATER},
};

static uint64_t tokens_of(const struct kind *k)
{
    return (uint64_t)(k->apart ? 1 : k->tokens ? k->n * (2 * k->tokens + k->n - 1) / 2 : k->n);
}

static bitnet_status run_kind(pass_trial *t, const struct kind *k)
{
    int each[PASS_TIMELINES], n = k->apart ? 1 : k->n;
    bitnet_status st = BITNET_OK;
    t->f = (finding){.cosine = 1, .bound = k->bound};
    memcpy(t->n_before, t->n_pos, sizeof t->n_pos);
    for (int i = 0; i < k->n; i++)
        each[i] = k->tokens ? k->tokens + i : 1;
    for (int i = 0; st == BITNET_OK && i < k->n_passes; i++)
        for (int at = 0; st == BITNET_OK && at < k->n; at += n)
            st = pass(t, k->first + at, n, each);
    if (st == BITNET_OK)
        st = each_block(t, k->first, k->n, compare_block);
    return st == BITNET_OK ? each_block(t, k->first, k->n, hand_over) : st;
}

/* ---- rows ---- */

/* The operations of passes. ONLY: checked in passes alone. MUST: has a case of its own, and passes
 * must call its kernel if it is the chosen one. MAY: has a case of its own, and may be called. */
typedef enum need { MAY, MUST, ONLY } need;
static const struct pass_op {
    bnet_op op;
    need need;
} pass_ops[] = {
    {BNET_OP_LAYERS, ONLY},     {BNET_OP_LINEAR_TILES, MUST}, {BNET_OP_NORM_TILES, MUST},
    {BNET_OP_PREFILL, MUST},    {BNET_OP_ROPE_APPEND, MUST},  {BNET_OP_NORM_QUANTIZE, MUST},
    {BNET_OP_ROPE_TABLE, MUST}, {BNET_OP_GATHER, MUST},       {BNET_OP_TOPK, MUST},
    {BNET_OP_PACK, MUST},       {BNET_OP_STEP, MUST},         {BNET_OP_LINEAR, MAY},
    {BNET_OP_EMBED, MAY},       {BNET_OP_ATTENTION, MAY}};

static const struct pass_op *op_of(const validation_run *r, const bnet_kernel_record *k)
{
    for (size_t i = 0; i < BNET_COUNT(pass_ops); i++)
        if (k->device == r->device.device && pass_ops[i].op == k->op && bnet_validate_wants(r, k))
            return &pass_ops[i];
    return NULL;
}

bool bnet_case_pass_only(const bnet_kernel_record *k)
{
    return k->device != BNET_DEV_CPU && k->op == pass_ops[0].op;
}

static bool is_chosen(const validation_run *r, const bnet_kernel_record *k)
{
    const bnet_kernel_query q = bnet_query_for(k);
    const bnet_kernel_record *best = NULL;
    return bnet_registry_select(r->runtime->registry, &r->caps, &q, &best, NULL) == BITNET_OK &&
           best == k;
}

static bitnet_status add_row(pass_trial *t, const struct kind *k, const bnet_kernel_record *rec)
{
    const bnet_hparams *h = bnet_model_hparams(t->side[0].model);
    case_shape s = {tokens_of(k), (uint64_t)h->n_embd, (uint64_t)h->head_dim};
    bitnet_accuracy *a = bnet_validate_row(t->r, rec, s);
    const finding *f = &t->f;
    if (!a)
        return BITNET_MEMORY;
    a->max_error = f->logit;
    a->bound = f->bound;
    a->verdict = f->wrong[0] ? BITNET_VERDICT_FAIL : BITNET_VERDICT_PASS;
    if (f->wrong[0])
        snprintf(a->note, sizeof a->note, "in passes, %s: %s", k->what, f->wrong);
    else
        snprintf(a->note, sizeof a->note,
                 "in passes, %s: least cosine %.7f; cache off by %.2g, in layer 0 by %.2g", k->what,
                 f->cosine, f->cached, f->first);
    return BITNET_OK;
}

/* The matrices must be exactly the file's, after passes have put them together. */
static bitnet_status check_weights(pass_trial *t)
{
    const bnet_registry *all = t->r->runtime->registry;
    const bnet_kernel_record *k;
    const bnet_hparams *h = bnet_model_hparams(t->side[0].model);
    uint64_t n_values = 0, n = (uint64_t)h->n_embd;
    bitnet_status st = bnet_pass_matrices(t, &n_values);
    for (size_t i = 0; st == BITNET_OK && (k = bnet_registry_at(all, i)) != NULL; i++) {
        if (!op_of(t->r, k) || k->op != BNET_OP_PACK || !is_chosen(t->r, k))
            continue;
        bitnet_accuracy *a = bnet_validate_row(t->r, k, (case_shape){n, n, n});
        if (!a)
            return BITNET_MEMORY;
        a->verdict = t->f.wrong[0] ? BITNET_VERDICT_FAIL : BITNET_VERDICT_PASS;
        if (t->f.wrong[0])
            snprintf(a->note, sizeof a->note, "in passes, fused matrices: %s", t->f.wrong);
        else
            snprintf(a->note, sizeof a->note, "in passes, fused matrices, %llu values",
                     (unsigned long long)n_values);
    }
    return st;
}

static bitnet_status not_called(pass_trial *t, const bnet_kernel_record *k)
{
    char reason[120];
    const bnet_kernel_query q = bnet_query_for(k);
    bool vetoed = *bnet_kernel_veto(k, &t->r->caps, &q, reason, sizeof reason);
    bool spare = vetoed || k->tier == BITNET_TIER_REFERENCE || !is_chosen(t->r, k);
    need wanted = op_of(t->r, k)->need;
    if (wanted == MAY || (wanted == MUST && spare))
        return BITNET_OK;
    bitnet_accuracy *a = bnet_validate_row(t->r, k, (case_shape){1, 0, 0});
    if (!a)
        return BITNET_MEMORY;
    a->bound = MAX_LATER;
    bnet_validate_note(a, vetoed ? BITNET_VERDICT_SKIP : BITNET_VERDICT_FAIL,
                       vetoed ? reason : NOT_CALLED);
    return BITNET_OK;
}

/* Calls of every record of passes, by its place in the registry. */
static void count(const pass_trial *t, uint64_t calls[BNET_KERNELS_MAX])
{
    const bnet_kernel_record *k;
    for (size_t i = 0; (k = bnet_registry_at(t->r->runtime->registry, i)) != NULL; i++)
        calls[i] = op_of(t->r, k) ? bnet_validate_calls(t->side[0].be, k->id) : 0;
}

static bitnet_status run_kinds(pass_trial *t, uint64_t *before, uint64_t *after)
{
    const bnet_registry *all = t->r->runtime->registry;
    const bnet_kernel_record *k;
    bitnet_status st = BITNET_OK;
    for (size_t j = 0; st == BITNET_OK && j < BNET_COUNT(kinds); j++) {
        st = run_kind(t, &kinds[j]);
        count(t, after);
        for (size_t i = 0; st == BITNET_OK && (k = bnet_registry_at(all, i)) != NULL; i++)
            if (after[i] > before[i])
                st = add_row(t, &kinds[j], k);
        memcpy(before, after, BNET_KERNELS_MAX * sizeof *before);
    }
    for (size_t i = 0; st == BITNET_OK && (k = bnet_registry_at(all, i)) != NULL; i++)
        if (op_of(t->r, k) && after[i] == 0)
            st = not_called(t, k);
    return st == BITNET_OK ? check_weights(t) : st;
}

static bool any_wanted(const validation_run *r)
{
    const bnet_kernel_record *k;
    bool any = false;
    for (size_t i = 0; !any && (k = bnet_registry_at(r->runtime->registry, i)) != NULL; i++)
        any = op_of(r, k) != NULL;
    return any && r->device.device != BNET_DEV_CPU;
}

bitnet_status bnet_validate_passes(validation_run *r)
{
    pass_trial t = {.r = r, .seed = 7};
    char path[BNET_SYNTHETIC_PATH];
    bitnet_synthetic *small = NULL;
    uint64_t *calls[2] = {bnet_calloc(BNET_KERNELS_MAX, 8), bnet_calloc(BNET_KERNELS_MAX, 8)};
    bitnet_status st = calls[0] && calls[1] ? BITNET_OK : bnet_no_memory(r->err, "validation");
    if (any_wanted(r) && st == BITNET_OK) {
        st = bitnet_synthetic_open("mini-128", NULL, &small, r->err);
        if (st == BITNET_OK) {
            bnet_synthetic_path(small, path);
            st = bnet_gguf_open(path, NULL, &t.gguf, r->err);
        }
        for (int i = 0; st == BITNET_OK && i < 2; i++)
            st = open_side(&t, i);
        if (st == BITNET_OK)
            st = run_kinds(&t, calls[0], calls[1]);
        close_side(&t.side[0]);
        close_side(&t.side[1]);
    }
    bnet_gguf_close(t.gguf);
    bitnet_synthetic_close(small);
    bnet_free(calls[0]);
    bnet_free(calls[1]);
    return st;
}
