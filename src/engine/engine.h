/* engine.h - the objects behind bitnet.h, for the files of this folder. */
#ifndef BNET_ENGINE_H
#define BNET_ENGINE_H

#include <pthread.h>

#include "model/model_cache.h"
#include "bitnet_kernel.h"
#include "base/thread.h"
#include "model/kv_pool.h"
#include "text/stream.h"
#include "engine/workspaces.h"
#include "model/model.h"
#include "ops/provider.h"
#include "text/chat.h"

struct bitnet_runtime {
    bnet_pool *pool;
    bnet_registry *registry;
    bnet_manager *manager;  /* of providers */
    char *isa;              /* NULL: the best */
    char *tuning;           /* where measured choices come from; NULL: there are none */
    bnet_capabilities caps; /* of the CPU, limited by isa */
    bnet_devices *devices;  /* as found when the runtime was opened */
    bnet_selection selection;
    bool strict, statistics;
    bnet_log log;
    bnet_host_ledger ledger; /* of sessions and pools on the host */
};

/* What statistics have counted so far, so that a reset can subtract it. */
typedef struct bnet_counts {
    atomic_uint_fast64_t n_launches, n_gpu_launches, n_dequantised, n_fallbacks, n[BNET_CLASSES],
        ns[BNET_CLASSES], n_h2d, n_d2h, h2d_bytes, d2h_bytes, cache_hits, cache_misses, fp16_ns,
        bf16_ns, n_replays, n_unrecorded;
} bnet_counts;

/* Immutable after open, but for the backend's counters, which are atomic. */
struct bitnet_engine {
    bitnet_runtime *runtime;
    bnet_log log;
    bnet_gguf *gguf;
    bnet_selection selection; /* the runtime's, or the CPU where that device could not be used */
    bnet_backend *backend;    /* its own: kernel counters belong to one engine */
    bnet_model *model;        /* NULL: vocab_only */
    bnet_tokenizer *tokenizer;
    const bnet_chat_template *chat; /* NULL: the file names none we know */
    bitnet_i2s_layout layout;
    size_t longest_token; /* bytes, so that sessions can reserve text buffers */
    char *path, *name, *architecture;
    bitnet_model_info info;
    bnet_model_cache cache;

    /* Where timelines go whose backend failed: opened at the first failure (fallback.c). */
    pthread_mutex_t spare_lock;
    bnet_backend *spare;
    bnet_model *spare_model;
    atomic_uint_fast64_t n_fallbacks; /* steps repeated there */
    atomic_uint_fast64_t n_cut;       /* passes that were cancelled between layers */

    bnet_workspaces workspaces; /* lent to sessions and batches while they compute */
    bool invariant; /* batch_invariant on a device whose bits depend on how tokens are divided */
    bnet_cancel cancel; /* of calls that have no other: opening, texts, sessions */

    bnet_meter meter; /* of both backends, if the runtime keeps statistics */
    bnet_counts base; /* at the last reset */
};

enum { BNET_SESSION_KERNELS = 96 };

/* One timeline: tokens, their cache, the position. tokens[0..n_pos) are in the cache; what lies in
 * the cache beyond n_pos is unused. */
struct bitnet_session {
    bitnet_engine *engine;
    int n_ctx, n_batch;
    bitnet_kv_type kv_type;
    bnet_kv *kv;
    bnet_kv_entry entry; /* of kv in the pool it shares, if any */
    size_t n_pos;
    int32_t *tokens;     /* [n_ctx] */
    bnet_buffer *hidden; /* the normed state after tokens[n_pos - 1], if has_logits */
    bnet_buffer *fresh;  /* room for that of a step that may still fail */
    bool has_logits;     /* logits follow from `hidden` */
    float *row;          /* these logits, if somebody asked for them, else NULL */
    bool fallen;         /* kv and hidden belong to the engine's spare model */
    bool again;          /* its last step was told AGAIN: the next one begins with it */
    bnet_busy busy;      /* with a call: other calls that change it are refused */
    /* how its tokens were divided into passes, if that matters: a bit for the first token of each,
     * [n_ctx / 64 + 1]; and the tokens of the longest pass, n_batch at least */
    uint64_t *begins;
    int n_widest;
    bitnet_session_kernel kernels[BNET_SESSION_KERNELS]; /* that computed its tokens */
    size_t n_kernels;

    bnet_scratch *scratch;      /* borrowed while it computes, else NULL */
    const bnet_scratch *before; /* the one it had last: compared, never followed */

    bitnet_sampler *chooser; /* while generating: chooses after every pass with logits */
    int32_t chosen;          /* what it chose last */
    const float *all;        /* after a pass, for the chooser: all logits; NULL: `top` is enough */
    bnet_top top;
    int n_whole;      /* steps to go without asking for less than all: it did not pay */
    bool always_full; /* for tests: all logits, every time */

    bnet_stream stream; /* of generate; its memory is reserved at open */

    bnet_cancel cancel;     /* its own, or the engine's */
    bnet_progress progress; /* of a prompt, in tokens */
    bool counting;          /* progress of the prompt being appended is reported */
    bool in_score;          /* it is one window of several */
    uint64_t n_counted;     /* tokens of passes that are done */
    int n_in_pass;          /* of the one that is not */
    bool pass_has_head;     /* it ends with logits of all its tokens */
};

/* True if the caller wants everything to stop. */
static inline bool bnet_session_cancelled(const bitnet_session *s)
{
    return bnet_cancelled(&s->cancel);
}

/* The model that computes the timeline. */
static inline const bnet_model *bnet_session_model(const bitnet_session *s)
{
    return s->fallen ? s->engine->spare_model : s->engine->model;
}

/* The halves of opening a session with options that were checked. _make: buffers alone. _equip: an
 * empty cache and a workspace; where these do not fit the device and the CPU may take its place,
 * the timeline is computed there. */
bitnet_status bnet_session_make(bitnet_engine *e, const bitnet_session_options *o,
                                bitnet_session **out, bitnet_error *err);
bitnet_status bnet_session_equip(bitnet_session *s, const bitnet_session_options *o,
                                 bitnet_error *err);
/* Around every public call that changes a session or lends it out to callbacks: fails ARGUMENT
 * where s is NULL or such a call has not returned. _leave returns st. */
bitnet_status bnet_session_enter(const bitnet_session *s, const char *call, bitnet_error *err);
bitnet_status bnet_session_leave(const bitnet_session *s, bitnet_status st);
/* bitnet_session_append, _sync and _rewind for a call that has entered. */
bitnet_status bnet_session_append(bitnet_session *s, const int32_t *ids, size_t n_ids,
                                  bitnet_logits_fn each, void *user, bitnet_error *err);
bitnet_status bnet_session_sync(bitnet_session *s, const int32_t *ids, size_t n_ids,
                                size_t *n_reused, bitnet_error *err);
void bnet_session_cut(bitnet_session *s, size_t position);
/* Tokens that the timeline has in common with ids, but for the last of these. */
size_t bnet_session_common(const bitnet_session *s, const int32_t *ids, size_t n_ids);
/* Fails ARGUMENT if the engine was opened with vocab_only. */
bitnet_status bnet_check_weights(const bitnet_engine *e, bitnet_error *err);
/* Checks that every id names a row of the embedding. `what` begins the message ("append"). */
bitnet_status bnet_check_ids(const bitnet_engine *e, const char *what, const int32_t *ids, size_t n,
                             bitnet_error *err);
/* One pass over n <= n_batch tokens at the end of the timeline; the last n_rows of them can be
 * asked for logits. n_next ids behind them (0: none is known) are the pass that follows at once,
 * whose last one will be if next_last. On failure the position has not moved. */
bitnet_status bnet_session_pass(bitnet_session *s, const int32_t *ids, int n, int n_rows,
                                int n_next, bool next_last, bitnet_error *err);
/* Progress (session_progress.c), in this order: n_tokens will be computed (reported if several); a
 * pass over n_tokens begins, with or without logits of all of them, between whose layers the caller
 * is asked; logits of so many of its rows are done; the pass is done. Return false if the caller
 * has cancelled. */
void bnet_session_count(bitnet_session *s, size_t n_tokens, bool several);
void bnet_session_watch(bitnet_session *s, int n_tokens, bool head);
bool bnet_session_delivered(bitnet_session *s, int n_rows);
bool bnet_session_passed(bitnet_session *s, int n_tokens);
/* Around everything that computes: s->scratch is lent by the engine. */
bitnet_status bnet_session_borrow(bitnet_session *s, bitnet_error *err);
void bnet_session_return(bitnet_session *s); /* nothing if none was lent */
/* After a pass whose first row follows the last token (session_head.c). What its logits follow from
 * is in s->fresh. _answer computes those the chooser may need, until the workspace is returned.
 * _adopt makes s->fresh the state of the last token. _choose sets s->chosen; it fails if no logit
 * is finite, which is not the backend's failure. _forget drops the logits of a position that is no
 * longer the last. */
bitnet_status bnet_session_answer(bitnet_session *s, bitnet_error *err);
void bnet_session_adopt(bitnet_session *s);
bitnet_status bnet_session_choose(bitnet_session *s, bitnet_error *err);
void bnet_session_forget(bitnet_session *s);
/* Makes the cache whole for positions [0, n_pos) with room up to n_need, and keeps it so until
 * _let_go; nothing to do for a session with a cache of its own (session_kv.c). Fails: CONTEXT (more
 * than its pool holds), CANCELLED, what a pass fails with; then nothing is held. */
bitnet_status bnet_session_hold(bitnet_session *s, size_t n_need, bitnet_error *err);
void bnet_session_let_go(bitnet_session *s);
/* The same for the first of n sessions and as many after it as find room up to ends[i]; *n_held
 * says how many. At most *budget lost tokens are computed again, which are then taken off it; a
 * session that needs more fails with AGAIN. On failure *n_held is the index of the session that
 * failed. */
bitnet_status bnet_session_hold_group(bitnet_session *const *sessions, const size_t *ends, size_t n,
                                      size_t *n_held, size_t *budget, bitnet_error *err);
/* Computes tokens [s->n_pos, end) of the timeline anew; with `logits`, keeps in s->hidden what
 * those of the last token follow from. s->n_pos says how far it came. Fails: CANCELLED, what a pass
 * fails with. */
bitnet_status bnet_session_recompute(bitnet_session *s, size_t end, bool logits, bitnet_error *err);
/* Notes that tokens [at, at + n) go through the model in one pass. */
void bnet_session_note_pass(bitnet_session *s, size_t at, size_t n);
/* Around what a workspace is lent for: the kernels called meanwhile are counted for every one of
 * the sessions, which are on one side (session_kernels.c). */
void bnet_kernels_begin(bnet_scratch *x, const bitnet_session *s);
void bnet_kernels_end(bnet_scratch *x, bitnet_session *const *sessions, size_t n);
/* Opens and closes s->hidden and s->fresh, on the session's side (session_head.c). */
bitnet_status bnet_session_open_hidden(bitnet_session *s, bitnet_error *err);
void bnet_session_close_hidden(bitnet_session *s);
/* Opens and closes s->kv, in the pool or on its own. */
bitnet_status bnet_session_open_kv(bitnet_session *s, bitnet_kv_pool *pool, bitnet_error *err);
void bnet_session_close_kv(bitnet_session *s);
/* After a step failed with `why` (described in err): computes the timeline again on the spare
 * model, where the caller repeats the step. Returns `why` if that is forbidden (strict) or has been
 * done before. Requires that s->n_pos is the position before the failed step. */
bitnet_status bnet_session_fall_back(bitnet_session *s, bitnet_status why, bitnet_error *err);
void bnet_spare_close(bitnet_engine *e);
/* Fails MEMORY if `need` bytes are more than the backend's device has left or, where it has no
 * memory of its own (or be is NULL), than bnet_host_admit finds; `what` and `remedy` as there. held
 * too: what the caller takes off the runtime's ledger once it has the memory. */
bitnet_status bnet_check_memory(bitnet_engine *e, bnet_backend *be, uint64_t need, const char *what,
                                const char *remedy, uint64_t *held, bitnet_error *err);
/* The best provider of the CPU, limited by isa. */
const bnet_provider *bnet_runtime_cpu_provider(const bitnet_runtime *r);
/* What kernels may use on a GPU that was found; if there is none, only its kind is set. */
bnet_capabilities bnet_runtime_gpu(const bitnet_runtime *r, bnet_device_kind kind, int index);
bnet_capabilities bnet_runtime_caps(const bitnet_runtime *r); /* on the device it selected */
/* What the manager of providers asks; user: the runtime. */
size_t bnet_runtime_devices(void *user, bnet_capabilities *out, size_t cap);
/* Appends the key under which a tuning cache names this machine. Fails: MEMORY. */
bitnet_status bnet_runtime_tuning_key(const bitnet_runtime *r, bnet_str *out, bitnet_error *err);
/* Tells of every kernel both backends of an engine have called, each id once: the spare one has the
 * CPU's, the other never (stats.c). */
void bnet_engine_uses(const bitnet_engine *e, bnet_use_fn *each, void *user);
/* A digest of what decides the cache: the file's header, a sample of every tensor, the I2_S layout.
 */
bitnet_status bnet_engine_fingerprint(const bitnet_engine *e, uint8_t out[32], bitnet_error *err);

#endif
