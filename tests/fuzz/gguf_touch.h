/* gguf_touch.h - uses everything an open GGUF file offers, so that a wrong pointer or length shows
 * under a sanitiser. Shared by the fuzz target and the unit test of malformed files. */
#ifndef TEST_GGUF_TOUCH_H
#define TEST_GGUF_TOUCH_H

#include "format/codec.h"
#include "format/gguf.h"

#include <stdlib.h>

static inline uint64_t touch_value(const bnet_gguf *g, const bnet_gguf_kv *kv)
{
    char key[64];
    size_t n = kv->key.n < sizeof key - 1 ? kv->key.n : sizeof key - 1;
    int64_t i = 0;
    double d = 0;
    bool flag = false;
    bnet_span s = {0};
    const bnet_gguf_kv *array = NULL;
    bitnet_error err;
    memcpy(key, kv->key.data, n);
    key[n] = '\0';
    bnet_gguf_int(g, key, -5, 1 << 20, &i, NULL, &err);
    bnet_gguf_float(g, key, 0, 1e6, &d, NULL, &err);
    bnet_gguf_bool(g, key, &flag, NULL, &err);
    bnet_gguf_string(g, key, &s, NULL, &err);
    bnet_gguf_array(g, key, BNET_GGUF_I32, &array, &err);
    if (bnet_gguf_array(g, key, BNET_GGUF_STRING, &array, &err) == BITNET_OK && array) {
        const uint8_t *p = array->data;
        for (uint64_t k = 0; k < array->count; k++)
            s = bnet_gguf_next_string(&p);
    }
    return (uint64_t)i + (uint64_t)flag + (s.n ? (uint8_t)s.data[s.n - 1] : 0);
}

static inline uint64_t touch_keys(const bnet_gguf *g)
{
    uint64_t sum = 0;
    for (size_t k = 0; k < bnet_gguf_n_kv(g); k++) {
        bnet_str text = {0};
        const bnet_gguf_kv *kv = bnet_gguf_kv_at(g, k);
        bnet_gguf_kv_text(kv, &text, 5);
        sum += text.n + touch_value(g, kv);
        bnet_str_free(&text);
    }
    return sum;
}

/* Decodes the first and the last row where a codec exists and the row is short. */
static inline uint64_t touch_rows(const bnet_tensor *t)
{
    enum { MAX = 4096 };
    float row[MAX];
    int8_t trits[MAX];
    uint64_t n_rows = bnet_tensor_elems(t) / t->ne[0], n_row = t->n_bytes / n_rows, sum = 0;
    if (t->ne[0] > MAX)
        return 0;
    if (t->type == BNET_I2_S)
        return bnet_i2s_decode_row(BITNET_I2S_128, t->data, t->ne[0], 0, trits) +
               bnet_i2s_decode_row(BITNET_I2S_64, t->data, t->ne[0], n_rows - 1, trits) +
               (bnet_i2s_scale(t->data, bnet_tensor_elems(t)) > 0);
    if (bnet_decode_row(t->type, t->data, row, t->ne[0]))
        sum += row[0] > 0;
    if (bnet_decode_row(t->type, t->data + (n_rows - 1) * n_row, row, t->ne[0]))
        sum += row[t->ne[0] - 1] > 0;
    return sum;
}

static inline uint64_t touch_tensors(const bnet_gguf *g)
{
    uint64_t sum = 0;
    for (size_t k = 0; k < bnet_gguf_n_tensors(g); k++) {
        const bnet_tensor *t = bnet_gguf_tensor_at(g, k);
        sum += t->data[0] + t->data[t->n_bytes - 1] + t->data[t->n_span - 1] + touch_rows(t);
        if (bnet_gguf_tensor(g, t->name) != t || !bnet_type_find((uint32_t)t->type))
            abort();
    }
    return sum;
}

static inline uint64_t touch_all(const bnet_gguf *g)
{
    return touch_keys(g) + touch_tensors(g) + strlen(bnet_gguf_path(g)) + bnet_gguf_version(g);
}

#endif
