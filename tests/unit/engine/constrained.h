/* constrained.h - constraints rolled at random, what they mean for a row of logits in plain words,
 * and a generation under them held against choices made from all logits. */
#ifndef BNET_TEST_CONSTRAINED_H
#define BNET_TEST_CONSTRAINED_H

#include <float.h>
#include <math.h>

#include "unit/engine/nano.h"

#include "base/base.h"

enum { CONSTRAINED_BIASES = 40, CONSTRAINED_WORDS = 4096 };

typedef struct constrained {
    uint32_t allowed[CONSTRAINED_WORDS];
    bitnet_bias biases[CONSTRAINED_BIASES];
    bitnet_constraints c;
} constrained;

static inline bool is_allowed(const bitnet_constraints *c, int id)
{
    return !c->allowed || (c->allowed[id / 32] >> id % 32 & 1);
}

static inline void allow(constrained *r, int id)
{
    r->allowed[id / 32] |= 1u << id % 32;
}

/* A mask of none, few, half or most ids, with bits set beyond the vocabulary; biases of any kind.
 */
static inline void roll_constraints(constrained *r, int n_vocab, uint64_t *rng)
{
    static const unsigned per_mille[] = {0, 1, 20, 500, 995, 1000};
    unsigned share = per_mille[test_rand(rng) % 6], kind = (unsigned)(test_rand(rng) % 4);
    int n_words = (n_vocab + 31) / 32;
    bitnet_constraints_init(&r->c);
    memset(r->allowed, 0, sizeof r->allowed);
    for (int id = 0; id < 32 * n_words; id++)
        if (id >= n_vocab || test_rand(rng) % 1000 < share)
            allow(r, id);
    allow(r, (int)(test_rand(rng) % (unsigned)n_vocab));
    if (kind & 1)
        r->c.allowed = r->allowed;
    size_t n = kind & 2 ? test_rand(rng) % CONSTRAINED_BIASES : 0;
    int step = n_vocab / CONSTRAINED_BIASES + 1;
    for (size_t i = 0; i < n && (int)i * step < n_vocab; i++) { /* descending: order is free */
        static const float some[] = {100, -100, 3, -3, 0.5f, -INFINITY, 0, -FLT_MAX};
        r->biases[r->c.n_biases++] =
            (bitnet_bias){n_vocab - 1 - (int)i * step, some[test_rand(rng) % BNET_COUNT(some)]};
    }
    r->c.biases = r->biases;
}

/* The logits as they would be without constraints, for the same choice. */
static inline void apply_constraints(const bitnet_constraints *c, const float *logits, int n_vocab,
                                     float *out)
{
    for (int id = 0; id < n_vocab; id++)
        out[id] = is_allowed(c, id) ? logits[id] : -INFINITY;
    for (size_t i = 0; i < c->n_biases; i++) {
        float *v = &out[c->biases[i].id];
        if (isfinite(*v) && isfinite(c->biases[i].bias))
            *v = fmaxf(fminf(*v + c->biases[i].bias, FLT_MAX), -FLT_MAX);
        else
            *v = -INFINITY;
    }
}

static inline bool any_finite(const float *v, int n)
{
    for (int i = 0; i < n; i++)
        if (isfinite(v[i]))
            return true;
    return false;
}

static inline bitnet_sampler_options rolled_options(uint64_t *rng)
{
    bitnet_sampler_options o;
    bitnet_sampler_options_init(&o);
    o.temperature = (float)(test_rand(rng) % 4) * 0.5f;
    o.top_k = (int)(test_rand(rng) % 3) * 7;
    o.top_p = test_rand(rng) % 2 ? 0.9f : 1;
    o.typical_p = test_rand(rng) % 4 ? 1 : 0.8f;
    o.repetition_penalty = test_rand(rng) % 3 ? 1 : 1.3f;
    o.presence_penalty = test_rand(rng) % 3 ? 0 : 0.4f;
    o.seed = test_rand(rng);
    return o;
}

typedef struct heard {
    int32_t ids[16];
    size_t n;
    constrained *rolled; /* NULL: they stay as they are */
    bitnet_sampler *sampler;
    int n_vocab;
    uint64_t rng;
} heard;

/* Every token brings other constraints, as a grammar would. */
static inline bool hear(void *user, const char *text, size_t n, int32_t id)
{
    heard *h = user;
    (void)text;
    (void)n;
    h->ids[h->n++] = id;
    roll_constraints(h->rolled, h->n_vocab, &h->rng);
    h->rolled->c.n_biases /= 2; /* so that a token is always left */
    for (size_t i = 0; i < h->rolled->c.n_biases; i++)
        if (!isfinite(h->rolled->biases[i].bias))
            h->rolled->biases[i].bias = -50;
    OK(bitnet_sampler_constrain(h->sampler, &h->rolled->c, &err));
    return true;
}

/* The same tokens from all logits, with the constraints written into them. */
static inline void choose_from_all(bitnet_session *s, bitnet_sampler *sampler, heard *h,
                                   const int32_t *prompt, size_t n_prompt)
{
    float *row = malloc((size_t)h->n_vocab * sizeof *row);
    const float *logits;
    roll_constraints(h->rolled, h->n_vocab, &h->rng);
    h->rolled->c.n_biases = 0;
    OK(bitnet_session_append(s, prompt, n_prompt, NULL, NULL, &err));
    for (size_t i = 0; i < BNET_COUNT(h->ids); i++) {
        assert_non_null(logits = bitnet_session_logits(s));
        int32_t id;
        apply_constraints(&h->rolled->c, logits, h->n_vocab, row);
        OK(bitnet_sampler_pick(sampler, row, bitnet_session_tokens(s), bitnet_session_position(s),
                               &id, &err));
        hear(h, "", 0, id);
        OK(bitnet_session_append(s, &id, 1, NULL, NULL, &err));
    }
    free(row);
}

/* bitnet_generate and bitnet_batch_step under constraints that change with every token choose
 * what is chosen from all logits of a session of its own. */
static inline void check_constrained_generation(bitnet_engine *e, int round)
{
    int n_vocab = bitnet_engine_model(e)->n_vocab;
    const nano n = {.engine = e, .n_vocab = n_vocab};
    uint64_t rng = (uint64_t)round * 77 + 5;
    bitnet_sampler_options o = rolled_options(&rng);
    bitnet_sampler *samplers[4];
    bitnet_session *sessions[4];
    constrained *rolled = calloc(4, sizeof *rolled);
    heard h[4];
    int32_t prompt[9], next[2];
    nano_ids(&n, rng, prompt, 9);
    for (int i = 0; i < 4; i++) {
        OK(bitnet_sampler_open(&o, n_vocab, &samplers[i], &err));
        sessions[i] = nano_session(&n, 64, 16, BITNET_KV_F16);
        h[i] = (heard){.rolled = &rolled[i], .sampler = samplers[i], .n_vocab = n_vocab, .rng = 3};
    }
    bitnet_sampler *plain = NULL;
    OK(bitnet_sampler_open(&o, n_vocab, &plain, &err));
    choose_from_all(sessions[0], plain, &h[0], prompt, 9);
    bitnet_generate_options g;
    bitnet_generate_options_init(&g);
    g.max_tokens = BNET_COUNT(h[0].ids);
    g.ignore_eos = true;
    g.on_text = hear;
    g.user = &h[1];
    for (int i = 1; i < 4; i++) {
        roll_constraints(&rolled[i], n_vocab, &h[i].rng);
        rolled[i].c.n_biases = 0;
        OK(bitnet_sampler_constrain(samplers[i], &rolled[i].c, &err));
        if (i > 1)
            OK(bitnet_session_append(sessions[i], prompt, 8, NULL, NULL, &err));
        next[i / 3] = prompt[8];
    }
    OK(bitnet_generate(sessions[1], samplers[1], prompt, 9, &g, NULL, &err));
    for (size_t t = 0; t < BNET_COUNT(h[0].ids); t++) {
        OK(step_each(e, sessions + 2, samplers + 2, next, 2, next, &err));
        for (int i = 0; i < 2; i++)
            hear(&h[2 + i], "", 0, next[i]);
    }
    for (int i = 1; i < 4; i++)
        for (size_t t = 0; t < BNET_COUNT(h[0].ids); t++)
            if (h[i].ids[t] != h[0].ids[t])
                fail_msg("round %d, way %d, token %zu: %d, from all logits %d", round, i, t,
                         h[i].ids[t], h[0].ids[t]);
    for (int i = 0; i < 4; i++) {
        bitnet_sampler_close(samplers[i]);
        bitnet_session_close(sessions[i]);
    }
    bitnet_sampler_close(plain);
    free(rolled);
}

#endif
