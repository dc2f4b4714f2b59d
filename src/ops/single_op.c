/* single_op.c - a single operation by a provider: on its device if it has one, else on the CPU. */
#include "ops/provider.h"

#include "ops/single_op.h"

/* A result of m times n elements of which one is 0: the other may be any number. */
static bool is_empty(const bitnet_single_op *c)
{
    bool is_matrix = c->op == BITNET_SINGLE_MATMUL_I2S || c->op == BITNET_SINGLE_MATMUL ||
                     c->op == BITNET_SINGLE_SOFTMAX;
    return is_matrix && (!c->m || !c->n);
}

static void on_cpu(const bnet_provider *p, bitnet_single_op *c)
{
    const bnet_single_fns *f = p->single;
    if (is_empty(c))
        return;
    switch (c->op) {
    case BITNET_SINGLE_MATMUL_I2S:
        p->matmul_i2s(c->in[0], c->in[1], c->out[0], c->m, c->n, c->k);
        break;
    case BITNET_SINGLE_MATMUL:
        f->matmul(c->in[0], c->in[1], c->out[0], c->m, c->n, c->k);
        break;
    case BITNET_SINGLE_QUANTIZE:
        p->quantize((bitnet_qtype)c->type, (bitnet_scale_rule)c->rule, c->in[0], c->n, c->out[0],
                    c->out[1], c->k, c->m);
        break;
    case BITNET_SINGLE_QK256:
        bnet_ref_qk256_gemv(c->in[0], c->in[1], c->m, c->k, c->in[2], (bitnet_code_map)c->type,
                            c->out[0]);
        break;
    case BITNET_SINGLE_DEQUANTIZE:
        bnet_ref_dequantize((bitnet_qtype)c->type, c->in[0], c->n, c->in[1], c->k, c->out[0]);
        break;
    case BITNET_SINGLE_CONVERT:
        f->convert((bitnet_conversion)c->type, c->in[0], c->n, c->out[0]);
        break;
    case BITNET_SINGLE_VECTOR:
        f->vector((bitnet_vector)c->type, c->in[0], c->in[1], c->n, c->out[0]);
        break;
    case BITNET_SINGLE_SOFTMAX:
        f->softmax(c->in[0], c->m, c->n, c->out[0]);
        break;
    case BITNET_SINGLE_ARGMAX:
        f->argmax(c->in[0], c->m, c->n, c->out[0]);
        break;
    default:
        break;
    }
}

bitnet_status bnet_provider_run(const bnet_provider *p, bnet_backend *device, bitnet_single_op *c,
                                bitnet_error *err)
{
    if (p->device != BNET_DEV_CPU) {
        if (device)
            return bnet_single_run(device, c, 1, err);
        return bnet_fail(err, BITNET_NOT_AVAILABLE, "provider %s: no device of its kind is open",
                         p->name);
    }
    if (!p->single)
        return bnet_fail(err, BITNET_NOT_COMPILED, "provider %s is not in this build", p->name);
    double start = bnet_now_ms();
    on_cpu(p, c);
    c->ms[BITNET_STEP_EXECUTE] = bnet_now_ms() - start;
    return BITNET_OK;
}
