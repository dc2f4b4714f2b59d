/* runtime.c - threads, log sink, device and instruction set: what every engine of a program shares.
 */
#include "device/cpu_plan.h"
#include "engine/engine.h"

enum { THREADS_MAX = 1024 };

void bitnet_runtime_options_init(bitnet_runtime_options *o)
{
    if (o)
        *o = (bitnet_runtime_options){.struct_size = sizeof *o};
}

bitnet_status bnet_runtime_tuning_key(const bitnet_runtime *r, bnet_str *out, bitnet_error *err)
{
    const bnet_capabilities c = bnet_runtime_caps(r);
    bnet_tuning_key(&c, r->devices, BNET_MAX(r->selection.index, 0), out);
    return out->failed ? bnet_no_memory(err, "tuning") : BITNET_OK;
}

/* Reads the choices measured earlier on this machine into the registry. */
static bitnet_status load_tuning(bitnet_runtime *r, const char *path, bitnet_error *err)
{
    bnet_str key = {0};
    bool used = false;
    bitnet_status st = bnet_runtime_tuning_key(r, &key, err);
    if (st == BITNET_OK)
        st = bnet_registry_load_tuning(r->registry, key.data, path, &r->log, &used, err);
    if (used && !(r->tuning = bnet_strdup(path)))
        st = bnet_no_memory(err, "tuning");
    if (used)
        bnet_logf(&r->log, BITNET_LOG_INFO, "tuning", "%s: %zu choices", path,
                  bnet_registry_choices(r->registry));
    bnet_str_free(&key);
    return st;
}

/* The registry, what its kernels may use here, and the choices measured earlier. */
static bitnet_status open_registry(bitnet_runtime *r, const char *tuning_path, bitnet_error *err)
{
    bitnet_status st = bnet_cpu_capabilities(r->isa, &r->caps, err);
    if (st == BITNET_OK)
        st = bnet_registry_open(&r->registry, err);
    if (st == BITNET_OK)
        st = bnet_manager_open(r->registry, bnet_runtime_devices, r, &r->manager, err);
    if (st == BITNET_OK && tuning_path)
        st = load_tuning(r, tuning_path, err);
    return st;
}

/* Looks at the machine (no vendor tool is run: that would take seconds) and chooses. */
static bitnet_status select_device(bitnet_runtime *r, const bitnet_runtime_options *o,
                                   bitnet_error *err)
{
    bnet_request request;
    const bnet_probe_options p = {.fake = o->fake_gpu,
                                  .strict = o->strict,
                                  .no_fake = o->no_fake_gpu,
                                  .visible = o->visible_devices,
                                  .quick = true,
                                  .log = &r->log};
    bitnet_status st = bnet_request_parse(o->device, o->device_origin ? o->device_origin : "device",
                                          &request, err);
    if (st == BITNET_OK)
        st = bnet_request_split(o->split, "split", &request, err);
    if (st != BITNET_OK)
        return st;
    r->devices = bnet_calloc(1, sizeof *r->devices);
    if (!r->devices)
        return bnet_no_memory(err, "devices");
    request.strict = o->strict;
    st = bnet_probe(&p, r->devices, err);
    if (st == BITNET_OK)
        st = bnet_select(r->devices, &request, &r->selection, err);
    const char *passed = r->selection.passed; /* a GPU that is not used is said to everybody */
    if (st == BITNET_OK)
        bnet_logf(&r->log, *passed ? BITNET_LOG_WARN : BITNET_LOG_INFO, "device", "%s%s%s", passed,
                  *passed ? "; " : "", r->selection.summary);
    return st;
}

/* Threads are pinned where there is one for every CPU (or every core) we may use and no quota makes
 * them wait: then none can be moved to a better place, only to a worse one. */
static bitnet_status open_pool(bitnet_runtime *r, const bitnet_runtime_options *o,
                               bitnet_error *err)
{
    bnet_cpu_plan *plan = bnet_calloc(1, sizeof *plan);
    if (!plan)
        return bnet_no_memory(err, "thread pool");
    int n_usable = r->devices->cpu.n_usable;
    bitnet_status st = bnet_cpu_plan_make("", NULL, 0, n_usable, plan, err);
    int n = o->n_threads ? o->n_threads : BNET_MIN(plan->n_threads, (int)THREADS_MAX);
    bool full = n_usable == plan->n && (n == plan->n || n == plan->n_threads);
    bool pin = n <= plan->n && (o->pin == BITNET_PIN_ON || (o->pin == BITNET_PIN_AUTO && full));
    bnet_logf(&r->log, BITNET_LOG_DEBUG, "cpu", "%d threads%s, %d CPUs usable", n,
              pin && n > 1 ? ", pinned" : "", n_usable);
    if (st == BITNET_OK)
        st = bnet_pool_open_on(n, pin ? plan->cpu : NULL, &r->pool, err);
    bnet_free(plan);
    return st;
}

bitnet_status bitnet_runtime_open(const bitnet_runtime_options *options, bitnet_runtime **out,
                                  bitnet_error *err)
{
    if (!out)
        return bnet_fail(err, BITNET_ARGUMENT, "runtime: out must not be NULL");
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    bitnet_status st = bnet_options_copy(&o, sizeof o, options, "runtime options", err);
    if (st == BITNET_OK)
        st = bnet_check_int("runtime options", "n_threads", o.n_threads, 0, THREADS_MAX, err);
    if (st == BITNET_OK)
        st = bnet_check_int("runtime options", "pin", o.pin, BITNET_PIN_AUTO, BITNET_PIN_OFF, err);
    if (st != BITNET_OK)
        return st;
    bitnet_runtime *r = bnet_calloc(1, sizeof *r);
    if (!r)
        return bnet_no_memory(err, "runtime");
    r->log = (bnet_log){o.log, o.log_user};
    r->strict = o.strict;
    r->statistics = o.statistics;
    st = select_device(r, &o, err);
    if (st == BITNET_OK && o.isa && !(r->isa = bnet_strdup(o.isa)))
        st = bnet_no_memory(err, "runtime options");
    if (st == BITNET_OK)
        st = open_pool(r, &o, err);
    if (st == BITNET_OK)
        st = open_registry(r, o.tuning_path, err);
    if (st == BITNET_OK)
        bnet_registry_refine(r->registry, o.refine);
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
    bnet_manager_close(r->manager);
    bnet_registry_close(r->registry);
    bnet_free(r->devices);
    bnet_free(r->isa);
    bnet_free(r->tuning);
    bnet_free(r);
}

int bitnet_runtime_threads(const bitnet_runtime *r)
{
    return r ? bnet_pool_threads(r->pool) : 0;
}

const char *bitnet_runtime_summary(const bitnet_runtime *r)
{
    return r ? r->selection.summary : NULL;
}

const char *bitnet_backend_list(int i)
{
    return bnet_backend_at(i);
}
