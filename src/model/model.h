/* model.h - the network: hyper-parameters, weights on a backend, the paged cache, one forward pass.
 * Hides: architectures, tensor names, the order of operations. docs/MODEL.md tells it in words. */
#ifndef BNET_MODEL_H
#define BNET_MODEL_H

#include "base/progress.h"
#include "format/gguf.h"
#include "ops/ops.h"

typedef struct bnet_hparams {
    char arch[32];
    int n_layers, n_embd, n_ff, n_heads, n_kv_heads, head_dim, n_rot, n_vocab, n_ctx_train;
    float rms_eps, rope_base;
    bnet_activation act;
    bool rope_neox;        /* pairs (j, j+n/2); else (2j, 2j+1) */
    bool sub_norms;        /* attn_sub_norm and ffn_sub_norm are present */
    bool ternary_required; /* bitnet archs: dense projections are ternarised at load or refused */
    bool tied_head;
} bnet_hparams;

typedef struct bnet_model bnet_model;

/* The file must stay open as long as the model. progress (may be NULL) gets the bytes of every
 * tensor that is prepared. */
bitnet_status bnet_model_open(const bnet_gguf *g, bnet_backend *be, bitnet_i2s_layout layout,
                              const bnet_log *log, bnet_progress *progress, bnet_model **out,
                              bitnet_error *err);
void bnet_model_close(bnet_model *m);
const bnet_hparams *bnet_model_hparams(const bnet_model *m);
const char *bnet_model_weight_type(const bnet_model *m); /* "I2_S", ..., "mixed" */
const char *bnet_model_embedding_type(const bnet_model *m);
const char *bnet_model_head_type(const bnet_model *m);

/* From now on *n_bytes has what caches and workspaces of this model may take and have not touched:
 * systems that overcommit still call it free. Several models may share a count. */
void bnet_model_count(bnet_model *m, atomic_uint_fast64_t *n_bytes);
/* So many bytes more may be taken later; so many of them are used now, or never will be. */
void bnet_model_reserve(const bnet_model *m, uint64_t n_bytes);
void bnet_model_release(const bnet_model *m, uint64_t n_bytes);

/* ---- the cache of one timeline: blocks of 64 positions, keys and values of every layer ---- */

#define BNET_KV_BLOCK 64

typedef struct bnet_kv bnet_kv;

uint64_t bnet_kv_bytes(const bnet_model *m, int n_ctx, bitnet_kv_type type);
bitnet_status bnet_kv_open(const bnet_model *m, int n_ctx, bitnet_kv_type type, bnet_kv **out,
                           bitnet_error *err);
void bnet_kv_close(bnet_kv *kv);

/* Blocks of a pool, which the tables of several timelines may share. Nothing here locks: the owner
 * of the pool lets one thread at a time take, share or return blocks, and sees that enough are
 * free.
 */
typedef struct bnet_kv_blocks bnet_kv_blocks;

uint64_t bnet_kv_block_bytes(const bnet_model *m, bitnet_kv_type type); /* all layers */
int bnet_kv_blocks_for(size_t n_pos);                                   /* how many hold n_pos */
bitnet_status bnet_kv_blocks_open(const bnet_model *m, int n_blocks, bitnet_kv_type type,
                                  bnet_kv_blocks **out, bitnet_error *err);
void bnet_kv_blocks_close(bnet_kv_blocks *b);
int bnet_kv_blocks_free(const bnet_kv_blocks *b);
/* The number of holders of a block; adds one; removes one, which frees the block if it was the
 * last. */
int bnet_kv_blocks_refs(const bnet_kv_blocks *b, int32_t block);
void bnet_kv_blocks_hold(bnet_kv_blocks *b, int32_t block);
void bnet_kv_blocks_drop(bnet_kv_blocks *b, int32_t block);
/* A timeline of up to n_ctx positions on blocks of a pool; closing it drops its blocks. */
bitnet_status bnet_kv_open_pooled(bnet_kv_blocks *b, int n_ctx, bnet_kv **out, bitnet_error *err);
int bnet_kv_mapped(const bnet_kv *kv);              /* blocks it has now */
int32_t bnet_kv_block_at(const bnet_kv *kv, int i); /* the i-th of them */
void bnet_kv_map(bnet_kv *kv, int32_t block);       /* shares one that is held, as its last */
void bnet_kv_trim(bnet_kv *kv, int n_blocks);       /* drops all but the first n_blocks */
/* In three steps, a timeline whose first n_valid positions are computed is made ready for writing
 * [n_valid, n_pos). _take drops blocks behind n_valid, takes blocks up to n_pos, and puts another
 * one in the place of that which holds n_valid where others hold that, too; the caller checked
 * n_valid <= n_pos <= n_ctx and that as many blocks are free as _missing says. _ready zeroes and
 * copies, which may wait for the device: only this step needs no lock. _settle ends it; if _ready
 * failed, the first n_valid positions are as before. */
typedef struct bnet_kv_taken {
    int n_before, n_cleared; /* blocks before the new ones; for undoing */
    int32_t copied; /* held until _settle: the block that is copied; BNET_KV_NONE: none is */
} bnet_kv_taken;
enum { BNET_KV_NONE = -1 }; /* no block */
int bnet_kv_missing(const bnet_kv *kv, int n_valid, int n_pos);
bnet_kv_taken bnet_kv_take(bnet_kv *kv, int n_valid, int n_pos);
bitnet_status bnet_kv_ready(bnet_kv *kv, const bnet_kv_taken *t, bitnet_error *err);
void bnet_kv_settle(bnet_kv *kv, const bnet_kv_taken *t, bool ready);
static inline bool bnet_kv_took(const bnet_kv *kv, const bnet_kv_taken *t)
{
    return t->copied != BNET_KV_NONE || bnet_kv_mapped(kv) > t->n_before;
}
/* Takes the blocks that positions [0, n_pos) lack; blocks beyond stay. On failure none is taken. */
bitnet_status bnet_kv_cover(bnet_kv *kv, int n_pos, bitnet_error *err);
/* Makes the first n_pos positions copies of those of another timeline of the same model and type.
 */
bitnet_status bnet_kv_copy(bnet_kv *kv, const bnet_kv *from, int n_pos, bitnet_error *err);

/* Saving and restoring: the blocks that hold positions [0, n_pos), layer by layer. _read requires
 * that they are mapped and changes nothing; what lies behind n_pos in the last block is read as 0;
 * _write takes blocks as _cover does and requires that nobody else holds them. */
typedef bitnet_status (*bnet_kv_sink)(void *user, const void *bytes, size_t n, bitnet_error *err);
uint64_t bnet_kv_saved_bytes(const bnet_kv *kv, int n_pos);
bitnet_status bnet_kv_read(const bnet_kv *kv, int n_pos, bnet_kv_sink sink, void *user,
                           bitnet_error *err);
bitnet_status bnet_kv_write(bnet_kv *kv, int n_pos, const uint8_t *bytes, bitnet_error *err);

/* ---- the forward pass ---- */

#define BNET_HEAD_ROWS BNET_TOP_ROWS /* rows of logits that one call computes, at most */

/* Scratch for passes of up to n_batch tokens. One pass at a time. */
typedef struct bnet_workspace bnet_workspace;

uint64_t bnet_workspace_bytes(const bnet_model *m, int n_batch);
bitnet_status bnet_workspace_open(const bnet_model *m, int n_batch, bnet_workspace **out,
                                  bitnet_error *err);
void bnet_workspace_close(bnet_workspace *ws);
/* Sets a function that is called after every layer of a pass (NULL: none), where the backend
 * computes layer by layer. If it returns false the pass ends with CANCELLED and its part of the
 * cache must not be used. */
typedef bool (*bnet_layer_fn)(void *user, int n_done, int n_layers);
void bnet_workspace_on_layer(bnet_workspace *ws, bnet_layer_fn each, void *user);

typedef struct bnet_batch {
    int n_tokens;       /* 1..n_batch */
    const int32_t *ids; /* [n_tokens] checked against n_vocab by the caller */
    const int32_t
        *pos; /* [n_tokens] position in its timeline; ascending by one within a timeline */
    const int32_t *seq; /* [n_tokens] index into kv; tokens of a timeline are adjacent */
    bnet_kv *const *kv; /* [n_seqs] */
    int n_seqs;
    const int32_t *rows; /* [n_rows] which tokens will be asked for logits, ascending */
    int n_rows;
    bool all_logits; /* every row will be asked for all its logits; the best alone are of no use */
    const struct bnet_batch *next; /* of the same timeline, what follows at once; NULL: not known */
    bnet_buffer *keep; /* gets the hidden state of rows[0], as bnet_hidden_keep; NULL: not wanted */
} bnet_batch;

/* The backend may run passes of this network in one piece, with kernels that differ between single
 * tokens and prompts. */
bool bnet_model_passes(const bnet_model *m);
/* Runs the layers, writes the cache, keeps the normed hidden state of `rows`. Fails only with what
 * the backend's sync reports (MEMORY, ERROR), or CANCELLED. The bits do not depend on how tokens
 * are divided into batches. */
bitnet_status bnet_forward(bnet_workspace *ws, const bnet_batch *b, bitnet_error *err);
/* Logits of rows [first, first+n) of the last pass, n <= BNET_HEAD_ROWS; out: [n][n_vocab], valid
 * until the next call. */
bitnet_status bnet_head(bnet_workspace *ws, int first, int n, const float **out, bitnet_error *err);

/* The same for any rows, ascending, with one reading of the head where the backend can. */
bitnet_status bnet_head_rows(bnet_workspace *ws, const int32_t *rows, int n, const float **out,
                             bitnet_error *err);

/* Answers `want` for a row from the best logits that the pass returned; false: these do not
 * suffice.
 */
bool bnet_best_top(bnet_workspace *ws, int row, const bnet_top_want *want, bnet_top *out);
int bnet_best_rows(const bnet_workspace *ws); /* how many rows the last pass brought them of */
/* At least the wanted logits of one row of the last pass, valid until the next call. *served false:
 * the backend cannot do this, or not for this row; call bnet_head. */
bitnet_status bnet_head_top(bnet_workspace *ws, int row, const bnet_top_want *want, bnet_top *out,
                            bool *served, bitnet_error *err);
/* The same of rows [first, first + n), n <= BNET_HEAD_ROWS, in one reading of the head, but for the
 * best logits of the pass. out[i].ids NULL: ask bnet_head_rows. */
bitnet_status bnet_head_tops(bnet_workspace *ws, int first, int n, const bnet_top_want *wants,
                             bnet_top *out, bitnet_error *err);

/* The normed hidden state of one row, kept by whoever may ask for its logits later, whatever passes
 * follow: its size, room for it (NULL: no memory), and copying a row of the last pass there. */
uint64_t bnet_hidden_bytes(const bnet_model *m);
bnet_buffer *bnet_hidden_open(const bnet_model *m);
void bnet_hidden_close(const bnet_model *m, bnet_buffer *hidden); /* NULL is legal */
bitnet_status bnet_hidden_keep(bnet_workspace *ws, int row, bnet_buffer *hidden, bitnet_error *err);
/* The normed hidden states of rows [first, first+n) of the last pass, n <= BNET_HEAD_ROWS; out:
 * [n][n_embd], valid until the next call. */
bitnet_status bnet_hidden_read(bnet_workspace *ws, int first, int n, const float **out,
                               bitnet_error *err);
/* All logits of a row that was kept; out as of bnet_head. */
bitnet_status bnet_hidden_head(bnet_workspace *ws, bnet_buffer *hidden, const float **out,
                               bitnet_error *err);

#endif
