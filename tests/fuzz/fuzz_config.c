/* fuzz_config.c - any file given to `bitnet serve --config`, read against the table of options.
 *
 * Input: the file. What must hold: no crash, no leak; a file is taken, or refused with one message
 * that names a line of it; what it sets has the file as its origin. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../cli/cli.h"

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "fuzz_config: %s\n", #what);                                           \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* ---- stand-ins for what the command prints, reads and starts ---- */

static const uint8_t *file;
static size_t n_file, n_complaints;

int fail(int code, const char *fmt, ...)
{
    char message[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    CHECK(code != EXIT_OK && message[0]);
    n_complaints++;
    return code;
}

void warn(const char *fmt, ...)
{
    CHECK(*fmt);
}

int read_input(const char *path, buffer *out)
{
    CHECK(strcmp(path, "server.toml") == 0);
    text_add(out, (const char *)file, n_file);
    return EXIT_OK;
}

void log_as_json(bool on)
{
    (void)on;
}

int log_levels_check(const char *origin, const char *levels)
{
    return strchr(levels, '=') ? fail(EXIT_USAGE, "%s: %s", origin, levels) : EXIT_OK;
}

void *xmalloc(size_t n)
{
    return xrealloc(NULL, n);
}

void *xrealloc(void *p, size_t n)
{
    p = realloc(p, n ? n : 1);
    CHECK(p);
    return p;
}

char *xmemdup(const char *s, size_t n)
{
    char *copy = xmalloc(n + 1);
    memcpy(copy, s, n);
    copy[n] = '\0';
    return copy;
}

char *xformat(const char *fmt, ...)
{
    char text[4096];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    CHECK(n >= 0 && (size_t)n < sizeof text);
    return xmemdup(text, (size_t)n);
}

void text_add(buffer *t, const char *bytes, size_t n)
{
    t->data = xrealloc(t->data, t->n + n + 1);
    memcpy(t->data + t->n, bytes, n);
    t->n += n;
    t->data[t->n] = '\0';
}

#define COMMAND(key, function, ...)                                                                \
    int function(args *a);                                                                         \
    int function(args *a)                                                                          \
    {                                                                                              \
        return a ? EXIT_OK : EXIT_USAGE;                                                           \
    }
#include "../../cli/commands.inc"

/* ---- what is looked at ---- */

static void check_values(const args *a)
{
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const value *v = &a->values[i];
        if (!v->origin || i == OPT_CONFIG_FILE)
            continue;
        CHECK(strncmp(v->origin, "server.toml:", 12) == 0);
        CHECK(option_on(option_at(i), a->command->key));
        for (size_t k = 0; k < v->n_list && v->list; k++)
            CHECK(v->list[k]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    char *argv[] = {"bitnet", "serve", "--config", "server.toml", NULL};
    args a = {0};
    file = data;
    n_file = n_bytes;
    n_complaints = 0;
    int rc = args_parse(&a, 4, argv);
    CHECK((rc == EXIT_OK) == (n_complaints == 0) && n_complaints <= 1);
    if (rc == EXIT_OK)
        check_values(&a);
    args_free(&a);
    return 0;
}
