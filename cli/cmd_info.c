/* cmd_info.c - `bitnet version`, `info`, `devices`, `preflight` and the two listing commands: what
 * this build is, what the machine has, and what the one can use of the other. Unlike run these may
 * ask vendor tools, which take their time. */
#include "cli.h"

#if defined(__aarch64__)
#define MACHINE "aarch64"
#elif defined(__x86_64__)
#define MACHINE "x86-64"
#else
#define MACHINE "other"
#endif

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAVE_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define HAVE_TSAN 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define HAVE_ASAN 1
#endif
#ifdef __SANITIZE_THREAD__
#define HAVE_TSAN 1
#endif

static const char *const features[] = {
    "gguf",
    "pcre2",
    "jansson",
    "libcrypto",
    "libmicrohttpd",
#ifdef BITNET_HAVE_LIBEDIT
    "libedit",
#endif
#ifdef HAVE_ASAN
    "address-sanitizer",
#endif
#ifdef HAVE_TSAN
    "thread-sanitizer",
#endif
};

enum { N_FEATURES = sizeof features / sizeof features[0], ISA_MAX = 32 };

typedef struct isa_row {
    const char *name;
    bool available;
    int n_kernels;
} isa_row;

/* The instruction sets there are kernels for, in the order the kernel list names them. */
static size_t isa_rows(isa_row rows[ISA_MAX])
{
    bitnet_kernel_info k;
    size_t n = 0;
    for (int i = 0; bitnet_kernel_at(i, &k); i++) {
        size_t r = 0;
        while (r < n && strcmp(rows[r].name, k.isa) != 0)
            r++;
        if (r == n && n < ISA_MAX)
            rows[n++] = (isa_row){.name = k.isa, .available = k.available};
        if (r < n)
            rows[r].n_kernels++;
    }
    return n;
}

static json_t *kernel_list(void)
{
    json_t *list = json_array();
    bitnet_kernel_info k;
    for (int i = 0; bitnet_kernel_at(i, &k); i++)
        json_array_append_new(list, j_object("id:t op:t format:t isa:t available:b", k.id, k.op,
                                             k.format, k.isa, k.available));
    return list;
}

static json_t *names_json(const char *(*at)(int))
{
    json_t *list = json_array();
    const char *name;
    for (int i = 0; (name = at(i)); i++)
        json_array_append_new(list, j_str(name));
    return list;
}

static void print_json(void)
{
    isa_row rows[ISA_MAX];
    size_t n = isa_rows(rows);
    json_t *isas = json_array(), *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(isas, j_object("name:t available:b n_kernels:i", rows[i].name,
                                             rows[i].available, rows[i].n_kernels));
    for (size_t i = 0; i < N_FEATURES; i++)
        json_array_append_new(list, j_str(features[i]));
    j_print(j_object("version:t api_version:i interface_version:t compiler:t machine:t features:j "
                     "backends:j isa:j kernels:j",
                     bitnet_version(), bitnet_api_version(), "1.0.0", COMPILER, MACHINE, list,
                     names_json(bitnet_backend_list), isas, kernel_list()));
}

static void print_text(void)
{
    isa_row rows[ISA_MAX];
    size_t n = isa_rows(rows);
    buffer out = {0};
    const char *name;
    text_printf(&out, "bitnet %s (library interface %d)\n", bitnet_version(), bitnet_api_version());
    text_printf(&out, "compiler: %s, %s\nfeatures:", COMPILER, MACHINE);
    for (size_t i = 0; i < N_FEATURES; i++)
        text_printf(&out, " %s", features[i]);
    text_puts(&out, "\nbackends:");
    for (int i = 0; (name = bitnet_backend_list(i)); i++)
        text_printf(&out, " %s", name);
    text_puts(&out, "\ninstruction sets:\n");
    for (size_t i = 0; i < n; i++)
        text_printf(&out, "  %-10s %3d kernel%s, %s\n", rows[i].name, rows[i].n_kernels,
                    plural((uint64_t)rows[i].n_kernels),
                    rows[i].available ? "available" : "not on this CPU");
    out_buffer(&out);
}

int cmd_version(args *a)
{
    if (opt_json(a))
        print_json();
    else
        print_text();
    return EXIT_OK;
}

static int list_names(const args *a, const char *(*at)(int), const char *key)
{
    const char *name;
    if (opt_json(a)) {
        json_t *j = json_object();
        json_object_set_new(j, key, names_json(at));
        j_print(j);
        return EXIT_OK;
    }
    for (int i = 0; (name = at(i)); i++)
        out_printf("%s\n", name);
    return EXIT_OK;
}

int cmd_list_templates(args *a)
{
    return list_names(a, bitnet_template_list, "templates");
}

int cmd_list_architectures(args *a)
{
    return list_names(a, bitnet_architecture_list, "architectures");
}

/* ---- info, devices, preflight ---- */

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
    return outcome(bitnet_devices_open(&o, out, &err), &err);
}

/* The library's object on one line, with what the command adds to it, or its text. Takes `more`. */
static void show(const args *a, const bitnet_devices *d, bitnet_devices_view view, json_t *more)
{
    json_t *j = opt_json(a) ? json_loads(bitnet_devices_json(d, view), 0, NULL) : NULL;
    if (!opt_json(a))
        out_puts(bitnet_devices_text(d, view));
    else if (j && json_object_update(j, more) == 0)
        j_print(j);
    else
        exit(fail(EXIT_MEMORY, "out of memory while writing JSON"));
    json_decref(more);
}

int cmd_info(args *a)
{
    bitnet_devices *d = NULL;
    bitnet_runtime *runtime = NULL;
    int rc = open_runtime(a, 1, &runtime);
    rc = rc ? rc : look(a, &d);
    if (!rc) {
        const char *kernels = bitnet_runtime_provider(runtime);
        const char *summary = bitnet_runtime_summary(runtime);
        show(
            a, d, BITNET_DEVICES_INFO,
            j_object("version:t provider:t backend_summary:t", bitnet_version(), kernels, summary));
        if (!opt_json(a))
            out_printf("kernels: %s\nat startup (drivers only): %s\n", kernels, summary);
    }
    bitnet_devices_close(d);
    bitnet_runtime_close(runtime);
    return rc;
}

int cmd_devices(args *a)
{
    bitnet_devices *d = NULL;
    int rc = look(a, &d);
    if (!rc)
        show(a, d, BITNET_DEVICES_LIST, json_object());
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
    show(a, d, BITNET_DEVICES_PREFLIGHT, json_object());
    bitnet_devices_close(d);
    if (ok || !opt_on(a, OPT_REQUIRE))
        return ok ? EXIT_OK : EXIT_OTHER;
    return fail(EXIT_NOT_AVAILABLE, "preflight: no GPU can be computed on, and --require asks "
                                    "for one");
}

json_t *devices_json(const bitnet_devices_options *o)
{
    bitnet_devices *d = NULL;
    json_t *j = NULL;
    if (bitnet_devices_open(o, &d, NULL) == BITNET_OK)
        j = json_loads(bitnet_devices_json(d, BITNET_DEVICES_LIST), 0, NULL);
    bitnet_devices_close(d);
    return j;
}
