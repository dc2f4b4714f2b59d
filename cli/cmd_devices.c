/* cmd_devices.c - `bitnet info`, `devices`, `preflight`: what the machine has and what this build
 * can use of it. Unlike run these may ask vendor tools, which take their time. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "bitnet_tools.h"
#include "cli.h"

static int look(const args *a, bitnet_devices **out)
{
    bitnet_devices_options o;
    bitnet_error err = {0};
    bitnet_devices_options_init(&o);
    o.gpu_fake = opt_text(a, OPT_GPU_FAKE) ? opt_text(a, OPT_GPU_FAKE) : getenv("BITNET_GPU_FAKE");
    o.strict = opt_on(a, OPT_STRICT_RUN);
    o.no_fake_gpu = opt_on(a, OPT_NO_FAKE);
    o.cuda_visible_devices = getenv("CUDA_VISIBLE_DEVICES");
    o.cuda_home = getenv("CUDA_HOME");
    o.tool_path = getenv("PATH");
    o.log = log_sink;
    o.log_user = (void *)(uintptr_t)a;
    return bitnet_devices_open(&o, out, &err) == BITNET_OK ? EXIT_OK : fail_with(&err);
}

/* The library's object on one line, with what the command adds to it. Takes the reference. */
static int print_object(const char *text, json_t *more)
{
    json_t *j = json_loads(text, 0, NULL);
    int rc = j && json_object_update(j, more) == 0
                 ? EXIT_OK
                 : fail(EXIT_MEMORY, "out of memory while writing JSON");
    if (!rc)
        j_print(j);
    json_decref(j);
    json_decref(more);
    return rc;
}

static int show(const args *a, const bitnet_devices *d, bitnet_devices_view view, json_t *more)
{
    if (opt_json(a))
        return print_object(bitnet_devices_json(d, view), more);
    json_decref(more);
    out_puts(bitnet_devices_text(d, view));
    return EXIT_OK;
}

int cmd_info(args *a)
{
    bitnet_devices *d = NULL;
    bitnet_runtime *runtime = NULL;
    int rc = open_runtime(a, 1, &runtime);
    if (!rc)
        rc = look(a, &d);
    if (!rc)
        rc = show(a, d, BITNET_DEVICES_INFO,
                  json_pack("{s:o, s:o, s:o}", "version", j_str(bitnet_version()), "provider",
                            j_str(bitnet_runtime_provider(runtime)), "backend_summary",
                            j_str(bitnet_runtime_summary(runtime))));
    if (!rc && !opt_json(a))
        out_printf("kernels: %s\nat startup (drivers only): %s\n", bitnet_runtime_provider(runtime),
                   bitnet_runtime_summary(runtime));
    bitnet_devices_close(d);
    bitnet_runtime_close(runtime);
    return rc;
}

int cmd_devices(args *a)
{
    bitnet_devices *d = NULL;
    int rc = look(a, &d);
    if (!rc)
        rc = show(a, d, BITNET_DEVICES_LIST, json_object());
    bitnet_devices_close(d);
    return rc;
}

int cmd_preflight(args *a)
{
    bitnet_devices *d = NULL;
    int rc = look(a, &d);
    if (rc)
        return rc;
    bool ok = bitnet_devices_preflight(d);
    rc = show(a, d, BITNET_DEVICES_PREFLIGHT, json_object());
    bitnet_devices_close(d);
    if (rc || ok)
        return rc;
    if (opt_on(a, OPT_REQUIRE))
        return fail(EXIT_NOT_AVAILABLE, "preflight: no GPU can be computed on, and --require asks "
                                        "for one");
    return EXIT_OTHER;
}
