/* weights.h - the inside of a model, shared by the files of this folder. */
#ifndef BNET_WEIGHTS_H
#define BNET_WEIGHTS_H

#include "model/model.h"

/* One layer: weights and nothing else (free_layer walks over them), NULL where the file has none.
 * Shapes [out, in]; norms of width n_embd unless said. */
typedef struct bnet_layer {
    bnet_weight *attn_norm;
    bnet_weight *q, *k, *v;     /* [n_heads*hd, n_embd], [n_kv_heads*hd, n_embd] twice */
    bnet_weight *attn_sub_norm; /* width n_heads*hd; NULL without sub-norms */
    bnet_weight *o;             /* [n_embd, n_heads*hd] */
    bnet_weight *ffn_norm;
    bnet_weight *gate, *up;    /* [n_ff, n_embd] */
    bnet_weight *ffn_sub_norm; /* width n_ff; NULL without sub-norms */
    bnet_weight *down;         /* [n_embd, n_ff] */
} bnet_layer;

struct bnet_model {
    bnet_hparams hp;
    bnet_backend *be;
    bnet_layer *layers;
    bnet_weight *embd; /* [n_vocab, n_embd] */
    bnet_weight *output_norm;
    bnet_weight *head; /* == embd when tied */
    double *inv_freq;  /* [n_rot/2] */
    bnet_rope rope;
    const char *weight_type, *embedding_type, *head_type;
    atomic_uint_fast64_t *reserved; /* see bnet_model_count, or NULL */
    bnet_net_layer *net_layers;     /* the same weights for backends that run whole passes */
    bnet_net net;
};

#endif
