/* json.c - JSON out. Whatever bytes a model makes, what is printed stays valid: bytes that are no
 * UTF-8 become U+FFFD, numbers that are none become null. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

#define DUMP_FLAGS (JSON_COMPACT | JSON_REAL_PRECISION(12))

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

static char *dump_line(json_t *object)
{
    char *s = json_dumps(object, DUMP_FLAGS);
    if (!s)
        exit(fail(EXIT_MEMORY, "out of memory while writing JSON"));
    return s;
}

bool j_print(json_t *object)
{
    char *s = dump_line(object);
    bool ok = out_printf("%s\n", s);
    free(s);
    return ok;
}

int j_save(json_t *object, const char *path)
{
    buffer line = {0};
    char *s = dump_line(object);
    text_printf(&line, "%s\n", s);
    int rc = save_bytes(path, line.data, line.n);
    free(s);
    free_buffer(&line);
    return rc;
}

int j_report(const args *a, json_t *object)
{
    int rc = EXIT_OK;
    if (opt_json(a))
        j_print(object);
    if (opt_given(a, OPT_JSON_OUT))
        rc = j_save(object, opt_text(a, OPT_JSON_OUT));
    json_decref(object);
    return rc;
}
