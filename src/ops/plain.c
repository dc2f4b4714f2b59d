/* plain.c - a single operation by a provider: on its device if it has one, else on the CPU. */
#include "ops/provider.h"

#include "ops/plain.h"

static void on_cpu(const bnet_provider *p, bnet_plain *c)
{
    const bnet_plain_fns *f = p->plain;
    switch (c->op) {
    case BNET_PLAIN_MATMUL_I2S:
        p->matmul_i2s(c->in[0], c->in[1], c->out[0], c->m, c->n, c->k);
        break;
    case BNET_PLAIN_MATMUL:
        f->matmul(c->in[0], c->in[1], c->out[0], c->m, c->n, c->k);
        break;
    case BNET_PLAIN_QK256:
        bnet_ref_qk256_gemv(c->in[0], c->in[1], c->m, c->k, c->in[2], (bitnet_code_map)c->type,
                            c->out[0]);
        break;
    case BNET_PLAIN_CONVERT:
        f->convert((bitnet_conversion)c->type, c->in[0], c->n, c->out[0]);
        break;
    case BNET_PLAIN_VECTOR:
        f->vector((bitnet_vector)c->type, c->in[0], c->in[1], c->n, c->out[0]);
        break;
    case BNET_PLAIN_SOFTMAX:
        f->softmax(c->in[0], c->m, c->n, c->out[0]);
        break;
    case BNET_PLAIN_ARGMAX:
        f->argmax(c->in[0], c->m, c->n, c->out[0]);
        break;
    default:
        break;
    }
}

bitnet_status bnet_provider_run(const bnet_provider *p, bnet_backend *device, bnet_plain *c,
                                bitnet_error *err)
{
    if (p->device != BNET_DEV_CPU) {
        if (device)
            return bnet_plain_run(device, c, 1, err);
        return bnet_fail(err, BITNET_NOT_AVAILABLE, "provider %s: no device of its kind is open",
                         p->name);
    }
    if (!p->plain)
        return bnet_fail(err, BITNET_NOT_COMPILED, "provider %s is not in this build", p->name);
    double start = bnet_now_ms();
    bitnet_status st = BITNET_OK;
    if (c->op == BNET_PLAIN_QUANTIZE)
        st = p->quantize((bitnet_qtype)c->type, (bitnet_scale_rule)c->rule, c->in[0], c->n,
                         c->out[0], c->out_bytes[0], c->out[1], c->k, err);
    else
        on_cpu(p, c);
    c->ms[BNET_STEP_EXECUTE] = bnet_now_ms() - start;
    return st;
}
