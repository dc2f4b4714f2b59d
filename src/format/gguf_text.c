/* gguf_text.c - values of keys as text for people: shortest floats, escaped strings, arrays cut
 * short. */
#include "format/gguf_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define TEXT_MAX ((size_t)1 << 16) /* bytes of a string shown; a chat template fits */

/* The fewest digits that read back as the same value. */
static void add_float(bnet_str *out, bnet_gguf_vtype t, const uint8_t *p)
{
    char buf[40];
    double d = 0;
    bool single = t == BNET_GGUF_F32;
    if (single)
        d = bnet_f32(p);
    else
        memcpy(&d, p, sizeof d);
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(buf, sizeof buf, "%.*g", digits, d);
        double back = strtod(buf, NULL);
        if (isnan(d) || (single ? (float)back == (float)d : back == d))
            break;
    }
    bnet_str_puts(out, buf);
}

/* `quoted`: between quotation marks, which are then escaped inside. */
static void add_string(bnet_str *out, bnet_span s, bool quoted)
{
    size_t n = BNET_MIN(s.n, TEXT_MAX);
    if (quoted)
        bnet_str_putc(out, '"');
    for (size_t i = 0; i < n;) {
        int len = bnet_utf8_len(s.data + i, s.n - i);
        unsigned char c = (unsigned char)s.data[i];
        if (c == '\n')
            bnet_str_puts(out, "\\n");
        else if (quoted && (c == '"' || c == '\\'))
            bnet_str_addf(out, "\\%c", c);
        else if (len <= 0 || c < 0x20 || c == 0x7f)
            bnet_str_addf(out, "\\x%02x", c);
        else
            bnet_str_add(out, s.data + i, (size_t)len);
        i += len > 0 ? (size_t)len : 1;
    }
    if (n < s.n)
        bnet_str_addf(out, "... (%zu bytes)", s.n);
    if (quoted)
        bnet_str_putc(out, '"');
}

static void add_scalar(bnet_str *out, bnet_gguf_vtype t, const uint8_t *p)
{
    uint64_t raw = 0;
    memcpy(&raw, p, bnet_gguf_elem_bytes(t));
    switch (t) {
    case BNET_GGUF_BOOL:
        bnet_str_puts(out, raw ? "true" : "false");
        return;
    case BNET_GGUF_F32:
    case BNET_GGUF_F64:
        add_float(out, t, p);
        return;
    case BNET_GGUF_I8:
        bnet_str_addf(out, "%d", (int8_t)raw);
        return;
    case BNET_GGUF_I16:
        bnet_str_addf(out, "%d", (int16_t)raw);
        return;
    case BNET_GGUF_I32:
        bnet_str_addf(out, "%d", (int32_t)raw);
        return;
    case BNET_GGUF_I64:
        bnet_str_addf(out, "%lld", (long long)(int64_t)raw);
        return;
    default:
        bnet_str_addf(out, "%llu", (unsigned long long)raw);
    }
}

static void add_array(bnet_str *out, const bnet_gguf_kv *kv, size_t max_elems)
{
    const uint8_t *p = kv->data;
    uint64_t n = BNET_MIN(kv->count, max_elems);
    bnet_str_putc(out, '[');
    for (uint64_t i = 0; i < n; i++) {
        if (i)
            bnet_str_puts(out, ", ");
        if (kv->elem == BNET_GGUF_STRING) {
            add_string(out, bnet_gguf_next_string(&p), true);
            continue;
        }
        add_scalar(out, kv->elem, p);
        p += bnet_gguf_elem_bytes(kv->elem);
    }
    if (n < kv->count)
        bnet_str_addf(out, "%s... %llu in all", n ? ", " : "", (unsigned long long)kv->count);
    bnet_str_putc(out, ']');
}

void bnet_gguf_kv_text(const bnet_gguf_kv *kv, bnet_str *out, size_t max_elems)
{
    const uint8_t *p = kv->data;
    if (kv->type == BNET_GGUF_ARRAY)
        add_array(out, kv, max_elems);
    else if (kv->type == BNET_GGUF_STRING)
        add_string(out, bnet_gguf_next_string(&p), false);
    else
        add_scalar(out, kv->type, p);
}
