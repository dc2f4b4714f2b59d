/* validate_pass_weights.c - weights as whole passes have them, q, k and v one behind the other,
 * gate and up with their rows in turn: each must still be the file's to the last one. */
#include "check/validate_pass.h"

#include <stdio.h>

#include "model/weights.h"

enum { MATRICES = 7 };

/* Every row of a matrix, by products with unit vectors; y: on the host, [n_in][n_out]. */
static bitnet_status read_matrix(bnet_backend *be, const bnet_weight *w, float *y,
                                 bitnet_error *err)
{
    const bnet_weight_info *i = bnet_op_weight_info(be, w);
    size_t n = (size_t)i->n_in, n_bytes = n * (size_t)i->n_out * sizeof *y;
    bnet_act8 act = {bnet_op_buffer(be, n * n), bnet_op_buffer(be, n * 4),
                     bnet_op_buffer(be, n * 4), n};
    bnet_buffer *out = bnet_op_buffer(be, n_bytes), *all[] = {act.q, act.scale, act.sum, out};
    int8_t *q = bnet_calloc(n, n);
    float *scale = bnet_alloc(n * sizeof *scale);
    int32_t *sum = bnet_alloc(n * sizeof *sum);
    bool ok = act.q && act.scale && act.sum && out && q && scale && sum;
    for (size_t t = 0; ok && t < n; t++)
        q[t * n + t] = (int8_t)(sum[t] = 1), scale[t] = 1;
    if (ok) {
        bnet_op_write(be, act.q, q, n * n);
        bnet_op_write(be, act.scale, scale, n * 4);
        bnet_op_write(be, act.sum, sum, n * 4);
        bnet_op_linear_ternary(be, w, &act, (int)n, out);
        const float *view = bnet_op_read(be, out, n_bytes);
        ok = view != NULL;
        if (ok)
            memcpy(y, view, n_bytes);
    }
    bitnet_status st = bnet_op_sync(be, err);
    for (size_t k = 0; k < BNET_COUNT(all); k++)
        bnet_op_buffer_free(be, all[k]);
    bnet_free(q);
    bnet_free(scale);
    bnet_free(sum);
    return st == BITNET_OK && !ok ? bnet_no_memory(err, "validation") : st;
}

static const bnet_weight *matrix_of(const bnet_model *m, int layer, int which)
{
    const bnet_layer *y = &m->layers[layer];
    const bnet_weight *const all[MATRICES] = {y->q, y->k, y->v, y->o, y->gate, y->up, y->down};
    return all[which];
}

/* One matrix of both models. */
static bitnet_status compare_matrix(pass_trial *t, int layer, int which, uint64_t *n_values)
{
    static const char *const names[MATRICES] = {"q", "k", "v", "o", "gate", "up", "down"};
    const bnet_weight *w = matrix_of(t->side[1].model, layer, which);
    const bnet_weight_info *info = bnet_op_weight_info(t->side[1].be, w);
    size_t n = (size_t)(info->n_in * info->n_out);
    float *y[2] = {bnet_alloc(n * sizeof **y), bnet_alloc(n * sizeof **y)};
    bitnet_status st = y[0] && y[1] ? BITNET_OK : bnet_no_memory(t->r->err, "validation");
    for (int s = 0; st == BITNET_OK && s < 2; s++)
        st = read_matrix(t->side[s].be, matrix_of(t->side[s].model, layer, which), y[s], t->r->err);
    for (size_t k = 0; st == BITNET_OK && k < n; k++)
        if (memcmp(&y[0][k], &y[1][k], sizeof **y) != 0 && !t->f.wrong[0])
            snprintf(t->f.wrong, sizeof t->f.wrong, "%s of layer %d, weight %zu: %g instead of %g",
                     names[which], layer, k, (double)y[0][k], (double)y[1][k]);
    *n_values += n;
    bnet_free(y[0]);
    bnet_free(y[1]);
    return st;
}

bitnet_status bnet_pass_matrices(pass_trial *t, uint64_t *n_values)
{
    int n = bnet_model_hparams(t->side[0].model)->n_layers * MATRICES;
    bitnet_status st = BITNET_OK;
    t->f = (finding){.cosine = 1};
    *n_values = 0;
    for (int i = 0; st == BITNET_OK && i < n; i++)
        st = compare_matrix(t, i / MATRICES, i % MATRICES, n_values);
    return st;
}
