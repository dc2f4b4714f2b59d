/* hf_config.h - config.json of a Hugging Face directory: what the network is and how its weights
 * are stored. Hides: spellings and defaults of the two model classes, newer nesting of keys. */
#ifndef BNET_HF_CONFIG_H
#define BNET_HF_CONFIG_H

#include "base/base.h"

/* How a projection X is stored. */
typedef enum bnet_hf_weights {
    BNET_HF_DENSE,    /* float weights that were never ternary */
    BNET_HF_MASTER,   /* float masters, made ternary by absmean at conversion */
    BNET_HF_MULTIPLY, /* packed codes, w = t * weight_scale */
    BNET_HF_DIVIDE,   /* packed codes, w = t / weight_scale */
} bnet_hf_weights;

#define BNET_HF_MAX_EOS 16

typedef struct bnet_hf_config {
    const char *arch;       /* GGUF architecture: "bitnet-b1.58", "bitnet", "llama" */
    const char *activation; /* "relu2" or "silu" */
    bool sub_norms;         /* bitnet graphs: attn_sub_norm, ffn_sub_norm */
    bool permute;           /* llama: Q and K rows are reordered for adjacent-pair rope */
    bool packed_by_default; /* no quantization_config: weights may still turn out packed */
    bnet_hf_weights weights;
    int64_t n_embd, n_ff, n_layers, n_heads, n_kv_heads, head_dim, n_vocab, n_ctx;
    bool explicit_head_dim; /* heads * head_dim differs from the width */
    double eps, rope_base;
    bool llama3_rope;
    double rope_factor, rope_low, rope_high, rope_old_ctx;
    bool tied, tied_known;
    int32_t bos, pad; /* -1: not given */
    int32_t eos[BNET_HF_MAX_EOS];
    size_t n_eos;
    char name[128]; /* "owner/model" or "" */
} bnet_hf_config;

/* Fails IO, or MODEL naming file, key and value. */
bitnet_status bnet_hf_config_read(const char *path, const bnet_log *log, bnet_hf_config *out,
                                  bitnet_error *err);
bitnet_status bnet_hf_config_parse(const char *data, size_t n, const char *path,
                                   const bnet_log *log, bnet_hf_config *out, bitnet_error *err);

#endif
