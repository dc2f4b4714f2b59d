/* cmd_version.c - `bitnet version` and the two listing commands: what this build is and can do. */
#include <jansson.h>
#include <string.h>

#include "bitnet_tools.h"
#include "build_info.h"
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
        json_array_append_new(list, json_pack("{s:o, s:o, s:o, s:o, s:b}", "id", j_str(k.id), "op",
                                              j_str(k.op), "format", j_str(k.format), "isa",
                                              j_str(k.isa), "available", k.available));
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
        json_array_append_new(isas,
                              json_pack("{s:o, s:b, s:i}", "name", j_str(rows[i].name), "available",
                                        rows[i].available, "n_kernels", rows[i].n_kernels));
    for (size_t i = 0; i < N_FEATURES; i++)
        json_array_append_new(list, j_str(features[i]));
    json_t *j =
        json_pack("{s:o, s:i, s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "version",
                  j_str(bitnet_version()), "api_version", bitnet_api_version(), "interface_version",
                  "1.0.0", "compiler", COMPILER, "machine", MACHINE, "features", list, "backends",
                  names_json(bitnet_backend_list), "isa", isas, "kernels", kernel_list());
    j_print(j);
    json_decref(j);
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
    out_write(out.data, out.n);
    free_buffer(&out);
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
        json_t *j = json_pack("{s:o}", key, names_json(at));
        j_print(j);
        json_decref(j);
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
