/* convert.h - checkpoints in, GGUF out. Streams in row blocks: resident memory does not grow with
 * the model. Inputs: a Hugging Face directory (config.json, model.safetensors or shards,
 * tokenizer.json), or a llama2.c model .bin with its tokenizer .bin. */
#ifndef BNET_CONVERT_H
#define BNET_CONVERT_H

#include "format/tensor.h"

typedef struct bnet_convert_options {
    bnet_type weight_type;    /* projections: I2_S (default), TQ2_0, TQ1_0, F16, F32 */
    bnet_type embedding_type; /* F16 (default), F32, BF16, Q8_0, Q6_K; also of an untied head */
    const char *tokenizer;    /* llama2.c only: path of the tokenizer .bin */
    bnet_log log;
    bitnet_progress_fn on_progress; /* bytes of tensors written; may be NULL */
    void *progress_user;
    /* told once where the output grows before it is renamed; may be NULL. user: progress_user */
    void (*on_temp)(void *user, const char *path);
} bnet_convert_options;

/* Every error names the input file, the tensor or key, the value. On failure or cancel nothing is
 * left at `out`. */
bitnet_status bnet_convert(const char *input, const char *out, const bnet_convert_options *options,
                           bitnet_error *err);
void bnet_convert_options_init(bnet_convert_options *options);

#endif
