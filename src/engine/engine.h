/* engine.h - the objects behind bitnet.h, for the files of this folder. */
#ifndef BNET_ENGINE_H
#define BNET_ENGINE_H

#include "bitnet_dev.h"
#include "base/thread.h"
#include "engine/options.h"
#include "model/model.h"
#include "ops/provider.h"
#include "text/chat.h"

struct bitnet_runtime {
    bnet_pool *pool;
    bnet_registry *registry;
    bnet_manager *manager;  /* of providers */
    char *isa;              /* NULL: the best */
    bnet_capabilities caps; /* of the CPU, limited by isa */
    bool strict;
    bnet_log log;
};

/* Immutable after open, but for the backend's counters, which are atomic. */
struct bitnet_engine {
    bnet_log log;
    bnet_gguf *gguf;
    bnet_backend *backend; /* its own: kernel counters belong to one engine */
    bnet_model *model;     /* NULL: vocab_only */
    bnet_tokenizer *tokenizer;
    const bnet_chat_template *chat; /* NULL: the file names none we know */
    bitnet_i2s_layout layout;
    size_t longest_token; /* bytes, so that sessions can reserve text buffers */
    char *path, *name, *architecture;
    bitnet_model_info info;
};

/* One timeline. tokens[0..n_pos) are in the cache; what lies in the cache beyond n_pos is unused.
 */
struct bitnet_session {
    bitnet_engine *engine;
    int n_ctx, n_batch;
    bitnet_kv_type kv_type;
    bnet_kv *kv;
    bnet_workspace *ws;
    size_t n_pos;
    int32_t *tokens; /* [n_ctx] */
    float *logits;   /* [n_vocab] after tokens[n_pos - 1], if has_logits */
    bool has_logits;
    bool in_batch; /* marks a session while bitnet_batch_step looks for one named twice */

    int32_t *pos, *seq, *rows, *ids; /* [n_batch] description of a pass; ids for batch steps only */
    bnet_kv **kvs;                   /* [n_batch] */
    bnet_str piece, tail; /* generate: text of one token, text held back; reserved at open */

    bitnet_cancel_fn cancel;
    void *cancel_user;
};

/* True if the caller wants everything to stop. */
static inline bool bnet_session_cancelled(const bitnet_session *s)
{
    return s->cancel && s->cancel(s->cancel_user);
}

/* Every id must name a row of the embedding. `what` stands in the message ("append"). */
bitnet_status bnet_check_ids(const bitnet_engine *e, const char *what, const int32_t *ids, size_t n,
                             bitnet_error *err);
/* The public form of a query as the registry takes it; missing texts are "". */
bnet_kernel_query bnet_query_of(const bitnet_kernel_query *q);
/* What the manager of providers asks; user: the runtime. */
size_t bnet_runtime_devices(void *user, bnet_capabilities *out, size_t cap);
/* Reads a tuning cache into the runtime's registry (tune.c). */
bitnet_status bnet_runtime_load_tuning(bitnet_runtime *r, const char *path, bitnet_error *err);
/* A digest of what decides the cache: the file's header, a sample of every tensor, the I2_S layout.
 */
bitnet_status bnet_engine_fingerprint(const bitnet_engine *e, uint8_t out[32], bitnet_error *err);

#endif
