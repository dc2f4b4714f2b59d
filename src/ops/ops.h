/* ops.h - what the model and everything above may ask of a backend. Shapes are checked here
 * (assert: a wrong shape is our bug), then one call goes to one of the backend's tables. Questions
 * about the backend itself go through inspect.h. */
#ifndef BNET_OPS_H
#define BNET_OPS_H

#include "ops/pass.h"

bnet_buffer *bnet_op_buffer(bnet_backend *be, size_t n_bytes);
void bnet_op_buffer_free(bnet_backend *be, bnet_buffer *b);
/* Why there was no memory for a buffer or a cache: what failed on the device, else MEMORY with
 * `what` that needs n bytes, where they were missing, and the remedy. */
bitnet_status bnet_op_no_memory(bnet_backend *be, const char *what, uint64_t n_bytes,
                                const char *remedy, bitnet_error *err);
const void *bnet_op_read(bnet_backend *be, bnet_buffer *b, size_t n_bytes);
void bnet_op_write(bnet_backend *be, bnet_buffer *b, const void *bytes, size_t n_bytes);
void bnet_op_mark(bnet_backend *be, int layer); /* what follows belongs to this layer; -1: none */
bitnet_status bnet_op_sync(bnet_backend *be, bitnet_error *err);
/* Operations between the two are one step of one session: see backend.h. st: the step's status so
 * far; returns it, or a later failure if it is OK. */
void bnet_op_hold(bnet_backend *be);
bitnet_status bnet_op_release(bnet_backend *be, bitnet_status st, bitnet_error *err);

bitnet_status bnet_op_weight(bnet_backend *be, const bnet_weight_request *r, const bnet_log *log,
                             bnet_weight **out, bitnet_error *err);
void bnet_op_weight_free(bnet_backend *be, bnet_weight *w);
const bnet_weight_info *bnet_op_weight_info(const bnet_backend *be, const bnet_weight *w);

/* May refuse the network; before any weight. */
bitnet_status bnet_op_expect(bnet_backend *be, const bnet_expect *e, const bnet_log *log,
                             bitnet_error *err);
void bnet_op_weights_done(bnet_backend *be, const bnet_log *log);
int bnet_op_ranks(const bnet_backend *be); /* copies of every buffer, at least 1 */

/* The cache; blocks and layers as in backend.h. NULL: no memory. */
bnet_kv_store *bnet_op_kv_new(bnet_backend *be, const bnet_kv_shape *shape);
void bnet_op_kv_free(bnet_backend *be, bnet_kv_store *kv);
void bnet_op_kv_get(const bnet_backend *be, bnet_kv_store *kv, int layer, int block, void *bytes);
void bnet_op_kv_put(const bnet_backend *be, bnet_kv_store *kv, int layer, int block,
                    const void *bytes);
void bnet_op_kv_clear(const bnet_backend *be, bnet_kv_store *kv, int block);
/* Copies a block of all layers; the stores may differ in n_blocks alone. */
void bnet_op_kv_copy(const bnet_backend *be, bnet_kv_store *dst, int to, bnet_kv_store *src,
                     int from);

const char *bnet_feature_name(bnet_feature_index i); /* as features.inc has it */
/* The features of this network that the backend's whole passes do not compute, so that it is
 * composed; 0: there are none, or the backend has no whole passes. */
bnet_features bnet_op_unknown(const bnet_backend *be, const bnet_net *net);
/* True: the backend ran the whole pass; false: compose it of what follows. */
bool bnet_op_pass(bnet_backend *be, const bnet_pass *p);
bool bnet_op_passes(const bnet_backend *be, const bnet_net *net); /* it may run its passes whole */
/* Memory of passes, see pass.h; 0 and true where there are none. */
uint64_t bnet_op_pass_bytes(bnet_backend *be, const bnet_net *net, int n_tokens);
bool bnet_op_pass_reserve(bnet_backend *be, const bnet_net *net, int n_tokens);
/* n_tokens, or the most that memory is planned for. */
int bnet_op_batch_limit(const bnet_backend *be, int n_tokens);
/* True: a recorded pass was repeated; there is nothing to compose. */
bool bnet_op_repeat(bnet_backend *be, const bnet_pass *p);
/* The backend records composed passes to repeat them. */
bool bnet_op_repeats(const bnet_backend *be, const bnet_net *net);
/* After composing. False: compose the pass again. */
bool bnet_op_composed(bnet_backend *be, const bnet_net *net);
void bnet_op_embed(bnet_backend *be, const bnet_weight *w, const bnet_step *s, bnet_buffer *x);
void bnet_op_rmsnorm(bnet_backend *be, bnet_buffer *x, const bnet_weight *w, float eps, int n_rows,
                     bnet_buffer *y);
void bnet_op_quantize_i8(bnet_backend *be, bnet_buffer *x, int n_rows, size_t n_cols, bnet_act8 *q);
/* True: the backend has both operations below as one call each. Otherwise they are composed, and
 * the caller does best to add a sum where it arises. */
bool bnet_op_fuses(const bnet_backend *be);
/* x += plus unless that is NULL; q = int8 of rmsnorm(x). y is room to work in, or x. */
void bnet_op_norm_quantize(bnet_backend *be, bnet_buffer *x, bnet_buffer *plus,
                           const bnet_weight *w, float eps, int n_rows, bnet_buffer *y,
                           bnet_act8 *q);
/* q = int8 of rmsnorm(glu(gate, up)). y is room to work in, or gate. */
void bnet_op_glu_norm_quantize(bnet_backend *be, bnet_activation act, bnet_buffer *gate,
                               bnet_buffer *up, const bnet_weight *w, float eps, int n_rows,
                               bnet_buffer *y, bnet_act8 *q);
void bnet_op_linear_ternary(bnet_backend *be, const bnet_weight *w, const bnet_act8 *q, int n_rows,
                            bnet_buffer *y);
/* Several ternary matrices on one input, at once where the backend can. */
void bnet_op_linear_ternary_n(bnet_backend *be, const bnet_weight *const *w, int n,
                              const bnet_act8 *q, int n_rows, bnet_buffer *const *y);
void bnet_op_linear_float(bnet_backend *be, const bnet_weight *w, bnet_buffer *x, int n_rows,
                          bnet_buffer *y);
/* linear_float for logits: counted apart from the layers. */
void bnet_op_head(bnet_backend *be, const bnet_weight *w, bnet_buffer *x, int n_rows,
                  bnet_buffer *y);
/* See pass.h: bytes of scratch, 0 without; nothing is served by a backend without it. Timed as
 * the head. */
size_t bnet_op_top_bytes(const bnet_backend *be, const bnet_weight *w);
void bnet_op_top(bnet_backend *be, const bnet_weight *w, bnet_buffer *x, int n_rows,
                 const bnet_top_want *wants, bnet_buffer *y, bnet_buffer *scratch, bnet_top *out);
void bnet_op_rope_table(bnet_backend *be, const bnet_rope *r, const bnet_step *s, bnet_buffer *cs);
void bnet_op_rope(bnet_backend *be, const bnet_rope *r, bnet_buffer *cs, int n_rows, int n_heads,
                  bnet_buffer *x);
void bnet_op_kv_append(bnet_backend *be, const bnet_step *s, int layer, bnet_buffer *k,
                       bnet_buffer *v);
void bnet_op_attention(bnet_backend *be, const bnet_step *s, int layer, int n_heads, bnet_buffer *q,
                       bnet_buffer *y);
void bnet_op_glu(bnet_backend *be, bnet_activation act, bnet_buffer *gate, bnet_buffer *up,
                 size_t n, bnet_buffer *y);
void bnet_op_add(bnet_backend *be, bnet_buffer *x, bnet_buffer *y, size_t n);
void bnet_op_gather(bnet_backend *be, bnet_buffer *x, const int32_t *rows, int n_rows,
                    size_t n_cols, bnet_buffer *y);

#endif
