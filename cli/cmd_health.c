/* cmd_health.c - `bitnet health`: a model is loaded and looked at for a few milliseconds, as a
 * server does while it runs: memory of the host, rows of one matrix against the file, one entry of
 * a cache. */
#include "cli.h"

static const char *verdict(bool ok)
{
    return ok ? "ok" : "FAILED";
}

static void print_text(const bitnet_health *h)
{
    out_printf("memory: %s (%.1f GB of the machine are available, the process has %.1f MB)\n",
               verdict(h->memory_ok), (double)h->memory_available / 1e9,
               (double)h->process_bytes / 1e6);
    out_printf("compute: %s (rows of one matrix times a vector, against the file)\n",
               verdict(h->compute_ok));
    out_printf("cache: %s (a key and a value, written and read by attention)\n",
               verdict(h->cache_ok));
    out_printf("health: %s, in %.3f ms\n", h->healthy ? "healthy" : "UNHEALTHY", h->elapsed_ms);
}

static void print_json(const bitnet_health *h)
{
    char text[1024];
    bitnet_health_json(h, text, sizeof text);
    json_t *j = json_loads(text, 0, NULL);
    if (!j)
        exit(fail(EXIT_MEMORY, "out of memory while writing JSON"));
    j_print(j);
}

/* What is wrong with the results comes before what is wrong with the machine. */
static int judge(const bitnet_health *h)
{
    if (h->healthy)
        return EXIT_OK;
    return fail(h->compute_ok && h->cache_ok ? EXIT_MEMORY_GATE : EXIT_MISMATCH, "health: %s",
                h->detail);
}

int cmd_health(args *a)
{
    loaded m = {0};
    bitnet_health h;
    bitnet_error err = {0};
    bitnet_health_init(&h);
    int rc = load_engine(&m, a, false);
    rc = rc ? rc : outcome(bitnet_health_check(m.engine, &h, &err), &err);
    load_close(&m);
    if (rc)
        return rc;
    if (opt_json(a))
        print_json(&h);
    else
        print_text(&h);
    return judge(&h);
}
