/* pass.h - the optional table of a backend that runs whole passes, or several operations as one.
 * Every entry is optional and gives the results of the single operations of backend.h; without an
 * entry, the model and ops.c compose its operations. */
#ifndef BNET_PASS_H
#define BNET_PASS_H

#include "ops/backend.h"

/* Bits of features.inc. */
typedef enum bnet_feature_index {
#define FEATURE(key, name) BNET_FEATURE_INDEX_##key,
#include "ops/features.inc"
#undef FEATURE
    BNET_N_FEATURES
} bnet_feature_index;
typedef uint64_t bnet_features;
#define BNET_FEATURE(key) ((bnet_features)1 << BNET_FEATURE_INDEX_##key)

/* The whole network, for backends that run passes in one piece. Weights as model/weights.h has
 * them; sub-norms are NULL in families without. */
typedef struct bnet_net_layer {
    const bnet_weight *attn_norm, *q, *k, *v, *attn_sub_norm, *o, *ffn_norm, *gate, *up,
        *ffn_sub_norm, *down;
} bnet_net_layer;

typedef struct bnet_net {
    bnet_features features; /* all it has; whoever does not compute one of them must refuse it */
    int n_layers, n_heads, n_kv_heads, head_dim;
    size_t n_embd, n_ff, n_vocab;
    float rms_eps;
    bnet_activation act;
    bnet_rope rope;
    const bnet_weight *embd, *output_norm, *head;
    const bnet_net_layer *layers; /* [n_layers] */
} bnet_net;

/* The largest finite logits of a row, the best first, ties to the lower id. */
enum { BNET_BEST = 64, BNET_BEST_ROWS = 64 };
typedef struct bnet_best {
    int n; /* fewer than BNET_BEST: there are no more */
    int32_t ids[BNET_BEST];
    float logits[BNET_BEST];
} bnet_best;

typedef struct bnet_pass {
    const bnet_net *net; /* the same one for the backend's life */
    const bnet_step *step;
    const int32_t *rows; /* [n_rows] tokens whose normed state is wanted */
    int n_rows;
    bnet_buffer *last;            /* [n_rows][embd] */
    bnet_best *best;              /* [n_rows] or NULL: not wanted; valid when pass returns */
    const struct bnet_pass *next; /* the pass that follows at once, if it is known: the backend may
                                     upload its step and rows meanwhile */
    bnet_buffer *keep;            /* [embd] gets the first row of `last`; NULL: not wanted */
} bnet_pass;

/* Which logits of a row are wanted: the k largest, all that equal the last of these or are less
 * than `range` below it, and those of the ids listed. */
typedef struct bnet_top_want {
    size_t k; /* 0: the ids alone, which then ascend; without any, nothing is wanted */
    float range;
    const int32_t *ids; /* inside the vocabulary, each once; not counted among the k */
    size_t n_ids;
} bnet_top_want;

/* At least these, exactly as linear_float computes them; ids ascending. */
typedef struct bnet_top {
    const int32_t *ids;
    const float *logits;
    size_t n;
} bnet_top;

enum { BNET_TOP_ROWS = 16 }; /* rows that are asked for together, at most */

struct bnet_pass_ops {
    /* ---- a whole pass: layers and final norm ---- */
    /* What pass and repeat compute. They are never asked for a network that has any other feature.
     */
    bnet_features features;
    /* Returns false if it cannot run this network or step: the caller composes the pass. */
    bool (*pass)(bnet_backend *be, const bnet_pass *p);
    /* Memory that passes of up to n_tokens need besides weights, caches and buffers, for all
     * sessions together, and is not reserved yet. */
    uint64_t (*pass_bytes)(bnet_backend *be, const bnet_net *net, int n_tokens);
    bool (*pass_reserve)(bnet_backend *be, const bnet_net *net,
                         int n_tokens); /* false: no memory */
    /* Both or neither, around the single operations of a pass. repeat returns true if it has run an
     * equal pass that was composed before: nothing is to be composed. composed returns false if
     * the pass must be composed again. */
    bool (*repeat)(bnet_backend *be, const bnet_pass *p);
    bool (*composed)(bnet_backend *be);
    /* The most tokens of a pass that memory is planned for; without it: any number. */
    int (*batch_limit)(const bnet_backend *be);

    /* ---- several operations as one ---- */
    /* Both or neither: the input of a ternary matrix. x += plus (NULL: nothing), then q =
     * int8 of rmsnorm(x). y [T][K] is room to work in, its contents are unspecified afterwards; it
     * may be x if nothing is added. */
    void (*norm_quantize)(bnet_backend *be, bnet_buffer *x, bnet_buffer *plus, const bnet_weight *w,
                          float eps, int n_rows, bnet_buffer *y, bnet_act8 *q);
    /* q = int8 of rmsnorm(glu(gate, up)); y as above, it may be gate. */
    void (*glu_norm_quantize)(bnet_backend *be, bnet_activation act, bnet_buffer *gate,
                              bnet_buffer *up, const bnet_weight *w, float eps, int n_rows,
                              bnet_buffer *y, bnet_act8 *q);
    /* Several matrices on one input. */
    void (*linear_ternary_n)(bnet_backend *be, const bnet_weight *const *w, int n,
                             const bnet_act8 *q, int n_rows, bnet_buffer *const *y);
    /* Both or neither: what sampling may ask of rows of logits, without computing all of them
     * exactly, in one reading of the weights or of a copy, or of both. top_bytes returns the size
     * `scratch` must have for this weight, 0 if it is not served. top: x [T][K], T <=
     * BNET_TOP_ROWS; wants, out [T]; the results lie in y [T][N] until that is written. out[i].ids
     * NULL: nothing was wanted, or it does not pay this time and all must be computed. */
    size_t (*top_bytes)(const bnet_backend *be, const bnet_weight *w);
    void (*top)(bnet_backend *be, const bnet_weight *w, bnet_buffer *x, int n_rows,
                const bnet_top_want *wants, bnet_buffer *y, bnet_buffer *scratch, bnet_top *out);
};

#endif
