/* runtime.c - threads, log sink and instruction set: what every engine of a program shares. */
#include "engine/engine.h"

enum { THREADS_MAX = 1024 };

void bitnet_runtime_options_init(bitnet_runtime_options *o)
{
    *o = (bitnet_runtime_options){.struct_size = sizeof *o};
}

/* Opening a backend is the only judge of an isa name, so that a wrong one fails here and not at the
 * first model. */
static bitnet_status check_isa(const bitnet_runtime *r, bitnet_error *err)
{
    bnet_backend *probe = NULL;
    bitnet_status st = bnet_backend_open_cpu(r->pool, r->isa, &r->log, &probe, err);
    bnet_backend_close(probe);
    return st;
}

bitnet_status bitnet_runtime_open(const bitnet_runtime_options *options, bitnet_runtime **out,
                                  bitnet_error *err)
{
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    bitnet_status st = bnet_options_copy(&o, sizeof o, options, "runtime options", err);
    if (st == BITNET_OK)
        st = bnet_check_int("runtime options", "n_threads", o.n_threads, 0, THREADS_MAX, err);
    if (st != BITNET_OK)
        return st;
    bitnet_runtime *r = bnet_calloc(1, sizeof *r);
    if (!r)
        return bnet_no_memory(err, "runtime");
    r->log = (bnet_log){o.log, o.log_user};
    int n_threads = o.n_threads ? o.n_threads : BNET_MIN(bnet_cpu_count(), THREADS_MAX);
    if (o.isa && !(r->isa = bnet_strdup(o.isa)))
        st = bnet_no_memory(err, "runtime options");
    if (st == BITNET_OK)
        st = bnet_pool_open(n_threads, &r->pool, err);
    if (st == BITNET_OK)
        st = check_isa(r, err);
    if (st != BITNET_OK) {
        bitnet_runtime_close(r);
        return st;
    }
    *out = r;
    return BITNET_OK;
}

void bitnet_runtime_close(bitnet_runtime *r)
{
    if (!r)
        return;
    bnet_pool_close(r->pool);
    bnet_free(r->isa);
    bnet_free(r);
}

int bitnet_runtime_threads(const bitnet_runtime *r)
{
    return bnet_pool_threads(r->pool);
}

const char *bitnet_backend_list(int i)
{
    return bnet_backend_at(i);
}

bool bitnet_kernel_at(int i, bitnet_kernel_info *out)
{
    bnet_kernel_row row;
    if (i < 0 || !bnet_backend_kernel_at(i, &row))
        return false;
    *out = (bitnet_kernel_info){row.id, row.op, row.format, row.isa, row.available};
    return true;
}
