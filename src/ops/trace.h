/* trace.h - what an engine computed, tensor by tensor: a folder with one small JSON file for each
 * result of an operation, so that two runs can be compared from the first difference on (docs/
 * CROSSVAL.md has the fields). Hides: names, numbers and files of a trace.
 *
 * A backend with a trace computes by single operations: whole passes and fused operations have no
 * tensors between that could be looked at. One pass at a time. A backend without one pays a test of
 * a pointer per operation. */
#ifndef BNET_TRACE_H
#define BNET_TRACE_H

#include "ops/backend.h"

/* Makes the folder if it is missing. Fails: IO (it cannot be made, or holds a JSON file already:
 * two traces would be mixed), MEMORY. */
bitnet_status bnet_trace_open(const char *folder, bnet_trace **out, bitnet_error *err);
void bnet_trace_close(bnet_trace *t); /* NULL is legal */

/* ---- called by ops.c ---- */

/* The tensor that a weight was prepared from: results are named after it. */
void bnet_trace_weight(bnet_trace *t, const bnet_weight *w, const char *name);
/* Around a pass and around what belongs to it; pairs may be nested. */
void bnet_trace_hold(bnet_trace *t);
void bnet_trace_release(bnet_trace *t);
/* A pass of so many tokens begins; its heads are head_dim wide; what follows is of this layer. */
void bnet_trace_pass(bnet_trace *t, int n_tokens);
void bnet_trace_head_dim(bnet_trace *t, int head_dim);
void bnet_trace_layer(bnet_trace *t, int layer);
/* n_heads heads: the result of attention, whose width only the trace knows. */
void bnet_trace_heads(bnet_backend *be, int n_rows, int n_heads, bnet_buffer *y);
/* Floats [n_rows][n_cols] that operation e left in y; w NULL: there is no weight in it. n_rows 0:
 * as many as the pass has tokens, n_cols values in all. */
void bnet_trace_floats(bnet_backend *be, bnet_op_entry e, const bnet_weight *w, int n_rows,
                       size_t n_cols, bnet_buffer *y);
void bnet_trace_int8(bnet_backend *be, int n_rows, size_t n_cols, const bnet_act8 *q);
/* Fails IO, MEMORY: the trace could not be written, since when nothing is. */
bitnet_status bnet_trace_status(bnet_trace *t, bitnet_error *err);

#endif
