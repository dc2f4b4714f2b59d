/* json.c - JSON out. Whatever bytes a model makes, what is printed stays valid: bytes that are no
 * UTF-8 become U+FFFD, numbers that are none become null. */
#include <math.h>

#include "cli.h"

/* Length of a sequence by its first byte; 0 for a byte that cannot begin one. */
static size_t announced(unsigned char c)
{
    if (c < 0x80)
        return 1;
    if (c >= 0xc2 && c <= 0xdf)
        return 2;
    if (c >= 0xe0 && c <= 0xef)
        return 3;
    return c >= 0xf0 && c <= 0xf4 ? 4 : 0;
}

size_t utf8_length(const unsigned char *s, size_t n)
{
    size_t k = n ? announced(s[0]) : 0;
    if (k == 0 || k > n)
        return 0;
    for (size_t i = 1; i < k; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    bool surrogate = s[0] == 0xed && s[1] > 0x9f;
    bool beyond = s[0] == 0xf4 && s[1] > 0x8f;
    return overlong || surrogate || beyond ? 0 : k;
}

json_t *j_text(const char *bytes, size_t n)
{
    buffer clean = {0};
    text_add(&clean, "", 0);
    for (size_t i = 0; i < n;) {
        size_t k = utf8_length((const unsigned char *)bytes + i, n - i);
        if (k)
            text_add(&clean, bytes + i, k);
        else
            text_puts(&clean, "\xef\xbf\xbd");
        i += k ? k : 1;
    }
    json_t *j = json_stringn(clean.data, clean.n);
    free_buffer(&clean);
    return j;
}

json_t *j_str(const char *s)
{
    return s ? j_text(s, strlen(s)) : json_null();
}

json_t *j_num(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

json_t *j_ids(const int32_t *ids, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(ids[i]));
    return list;
}

/* ---- objects ---- */

static void out_of_memory(void)
{
    exit(fail(EXIT_MEMORY, "out of memory while writing JSON"));
}

static json_t *next_value(char type, va_list *ap)
{
    switch (type) {
    case 't':
        return j_str(va_arg(*ap, const char *));
    case 'i':
        return json_integer(va_arg(*ap, int));
    case 'n':
        return json_integer((json_int_t)va_arg(*ap, uint64_t));
    case 'f':
        return j_num(va_arg(*ap, double));
    case 'b':
        return json_boolean(va_arg(*ap, int));
    default:
        return va_arg(*ap, json_t *);
    }
}

static void add_values(json_t *object, const char *names, va_list *ap)
{
    char name[64];
    for (size_t n; *names; names += n + (names[n] == ' ')) {
        n = strcspn(names, " ");
        snprintf(name, sizeof name, "%.*s", (int)n - 2, names);
        json_t *v = next_value(names[n - 1], ap);
        if (!v || json_object_set_new(object, name, v) != 0)
            out_of_memory();
    }
}

json_t *j_object(const char *names, ...)
{
    json_t *object = json_object();
    va_list ap;
    va_start(ap, names);
    add_values(object, names, &ap);
    va_end(ap);
    return object;
}

void j_add(json_t *object, const char *names, ...)
{
    va_list ap;
    va_start(ap, names);
    add_values(object, names, &ap);
    va_end(ap);
}

/* ---- out ---- */

static void dump_line(json_t *object, buffer *out)
{
    char *s = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(12));
    if (!s)
        out_of_memory();
    text_printf(out, "%s\n", s);
    free(s);
}

bool j_print(json_t *object)
{
    buffer line = {0};
    dump_line(object, &line);
    json_decref(object);
    return out_buffer(&line);
}

int j_save(json_t *object, const char *path)
{
    buffer line = {0};
    dump_line(object, &line);
    int rc = save_bytes(path, line.data, line.n);
    free_buffer(&line);
    return rc;
}

int j_report(const args *a, json_t *object)
{
    int rc = opt_given(a, OPT_JSON_OUT) ? j_save(object, opt_text(a, OPT_JSON_OUT)) : EXIT_OK;
    if (opt_json(a))
        j_print(object);
    else
        json_decref(object);
    return rc;
}
