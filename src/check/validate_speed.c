/* validate_speed.c - how fast each kernel of a matrix is: the time the device works, the time that
 * passes for the caller, and how both relate to the reference. */
#include "check/validate.h"

#include "bitnet_tools.h"

enum { REPEATS = 3 };

typedef struct times {
    double device_ms, wall_ms;
} times;

/* Medians after one pass that warms up. */
static bitnet_status measure(kernel_case *c, times *out, bitnet_error *err)
{
    double device[REPEATS], wall[REPEATS];
    bitnet_status st = BITNET_OK;
    for (int i = -1; st == BITNET_OK && i < REPEATS; i++) {
        double start = bnet_now_ms();
        bnet_case_load(c);
        double loaded = bnet_now_ms();
        st = bnet_case_run(c, err);
        double done = bnet_now_ms();
        bnet_case_result(c);
        if (i >= 0) {
            device[i] = done - loaded;
            wall[i] = bnet_now_ms() - start;
        }
    }
    if (st == BITNET_OK)
        *out = (times){bitnet_summarize(device, REPEATS).median,
                       bitnet_summarize(wall, REPEATS).median};
    return st;
}

/* *made false: there is no such case. */
static bitnet_status time_case(validation_run *r, bnet_backend *be, const bnet_kernel_record *k,
                               case_shape s, times *out, bool *made)
{
    kernel_case c;
    const char *skip;
    bitnet_status st = bnet_case_open(be, k, s, CASE_RANDOM, &c, &skip, r->err);
    *made = st == BITNET_OK && !skip;
    if (*made) {
        st = measure(&c, out, r->err);
        bnet_case_close(&c);
    }
    return st;
}

/* The reference is measured once for every key and shape. */
static bitnet_status reference_ms(validation_run *r, const bnet_kernel_record *k, case_shape s,
                                  double *out)
{
    for (size_t i = 0; i < r->out->n_performance; i++) {
        const bitnet_performance *p = &r->out->performance[i];
        if (p->m == s.m && p->n == s.n && p->k == s.k && bnet_format_find(p->format) == k->format &&
            bnet_dtype_find(p->dtype) == k->dtype) {
            *out = p->reference_ms;
            return BITNET_OK;
        }
    }
    bnet_backend *be = NULL;
    times t = {0, 0};
    bool made;
    bitnet_status st = bnet_validate_open_reference(r, &be);
    if (st == BITNET_OK)
        st = time_case(r, be, k, s, &t, &made);
    bnet_backend_close(be);
    *out = t.wall_ms;
    return st;
}

static bitnet_status add_row(validation_run *r, const bnet_kernel_record *k, case_shape s, times t,
                             double reference)
{
    bitnet_validation *v = r->out;
    if (!bnet_grow(&v->performance, &r->cap_performance, v->n_performance + 1,
                   sizeof *v->performance))
        return bnet_no_memory(r->err, "validation");
    double flops = 2.0 * (double)s.m * (double)s.n * (double)s.k;
    v->performance[v->n_performance++] =
        (bitnet_performance){.kernel = k->id,
                             .op = bnet_op_name(k->op),
                             .format = bnet_format_name(k->format),
                             .dtype = bnet_dtype_name(k->dtype),
                             .m = s.m,
                             .n = s.n,
                             .k = s.k,
                             .device_ms = t.device_ms,
                             .wall_ms = t.wall_ms,
                             .reference_ms = reference,
                             .speedup = t.wall_ms > 0 ? reference / t.wall_ms : 0,
                             .gflops = t.device_ms > 0 ? flops / (t.device_ms * 1e6) : 0};
    return BITNET_OK;
}

static bitnet_status time_kernel(validation_run *r, forced_kernel *f, const void *unused,
                                 bitnet_accuracy *none)
{
    times t = {0, 0};
    double reference = 0;
    bool made = false;
    (void)unused;
    (void)none;
    bitnet_status st = time_case(r, f->be, f->k, f->s, &t, &made);
    if (st == BITNET_OK && made)
        st = reference_ms(r, f->k, f->s, &reference);
    return st == BITNET_OK && made ? add_row(r, f->k, f->s, t, reference) : st;
}

bitnet_status bnet_validate_speed(validation_run *r)
{
    static const case_shape quick[] = {{1, 256, 256}, {64, 256, 256}},
                            middle[] = {{1, 256, 256}, {256, 256, 256}},
                            large[] = {{1, 1024, 1024}, {1024, 1024, 1024}};
    const bnet_kernel_record *k;
    bitnet_status st = BITNET_OK;
    size_t work = bnet_validate_work(r, SIZE_MAX);
    for (size_t i = 0; st == BITNET_OK && (k = bnet_registry_at(r->runtime->registry, i)); i++) {
        bool ternary = bnet_format_ternary(k->format);
        const case_shape *shapes = r->o.quick ? quick : ternary ? large : middle;
        bool timed = bnet_case_linear(k) && bnet_validate_wants(r, k);
        for (int j = 0; st == BITNET_OK && timed && j < 2; j++) {
            st = bnet_validate_at(r, bnet_validate_work(r, i) - 1, work);
            if (st == BITNET_OK)
                st = bnet_validate_forced(r, k, shapes[j], time_kernel, NULL, NULL);
        }
    }
    return st;
}
