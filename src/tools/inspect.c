/* inspect.c - looking into any GGUF file, also one we cannot run: keys as text, tensors, their
 * values. */

#include "format/codec.h"
#include "format/gguf.h"
#include "format/tensor_stats.h"

#include <stdio.h>

enum { ARRAY_SHOWN = 8 }; /* elements of an array before it is cut */

typedef struct kv_text {
    char *key;
    bnet_str value;
    char type[32];
} kv_text;

struct bitnet_inspect {
    bnet_gguf *gguf;
    kv_text *texts; /* [n_kv], each made when first asked for */
};

bitnet_status bitnet_inspect_open(const char *path, bitnet_inspect **out, bitnet_error *err)
{
    if (!path || !out)
        return bnet_fail(err, BITNET_ARGUMENT, "inspect: path and out must not be NULL");
    bitnet_inspect *in = bnet_calloc(1, sizeof *in);
    if (!in)
        return bnet_no_memory(err, "inspect");
    bitnet_status st = bnet_gguf_open(path, NULL, &in->gguf, err);
    if (st == BITNET_OK && !(in->texts = bnet_calloc(bnet_gguf_n_kv(in->gguf), sizeof *in->texts)))
        st = bnet_no_memory(err, path);
    if (st != BITNET_OK) {
        bitnet_inspect_close(in);
        return st;
    }
    *out = in;
    return BITNET_OK;
}

void bitnet_inspect_close(bitnet_inspect *in)
{
    if (!in)
        return;
    for (size_t i = 0; in->texts && i < bnet_gguf_n_kv(in->gguf); i++) {
        bnet_free(in->texts[i].key);
        bnet_str_free(&in->texts[i].value);
    }
    bnet_free(in->texts);
    bnet_gguf_close(in->gguf);
    bnet_free(in);
}

uint32_t bitnet_inspect_version(const bitnet_inspect *in)
{
    return in ? bnet_gguf_version(in->gguf) : 0;
}

uint64_t bitnet_inspect_file_bytes(const bitnet_inspect *in)
{
    return in ? bnet_gguf_file_bytes(in->gguf) : 0;
}

size_t bitnet_inspect_n_kv(const bitnet_inspect *in)
{
    return in ? bnet_gguf_n_kv(in->gguf) : 0;
}

size_t bitnet_inspect_n_tensors(const bitnet_inspect *in)
{
    return in ? bnet_gguf_n_tensors(in->gguf) : 0;
}

static const char *type_name(bnet_gguf_vtype t)
{
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    return (size_t)t < BNET_COUNT(names) ? names[t] : "unknown";
}

static bool make_text(kv_text *text, const bnet_gguf_kv *kv)
{
    bool array = kv->type == BNET_GGUF_ARRAY;
    snprintf(text->type, sizeof text->type, "%s%s", array ? "array of " : "",
             type_name(array ? kv->elem : kv->type));
    bnet_str_add(&text->value, "", 0); /* so that an empty string has a pointer */
    bnet_gguf_kv_text(kv, &text->value, ARRAY_SHOWN);
    if (!text->value.failed)
        text->key = bnet_memdup(kv->key.data, kv->key.n);
    if (!text->key)
        bnet_str_free(&text->value);
    return text->key != NULL;
}

bool bitnet_inspect_kv_at(bitnet_inspect *in, size_t i, bitnet_inspect_kv *out)
{
    if (!in || !out || i >= bnet_gguf_n_kv(in->gguf))
        return false;
    kv_text *text = &in->texts[i];
    if (!text->key && !make_text(text, bnet_gguf_kv_at(in->gguf, i)))
        return false;
    *out = (bitnet_inspect_kv){text->key, text->type, text->value.data};
    return true;
}

bool bitnet_inspect_tensor_at(bitnet_inspect *in, size_t i, bitnet_inspect_tensor *out)
{
    if (!in || !out || i >= bnet_gguf_n_tensors(in->gguf))
        return false;
    const bnet_tensor *t = bnet_gguf_tensor_at(in->gguf, i);
    const bnet_type_info *type = bnet_type_find((uint32_t)t->type);
    *out = (bitnet_inspect_tensor){.name = t->name,
                                   .type = type ? type->name : "unknown",
                                   .n_dims = t->n_dims,
                                   .n_elems = bnet_tensor_elems(t),
                                   .n_bytes = t->n_bytes,
                                   .offset = t->offset};
    for (int d = 0; d < BNET_MAX_DIMS; d++)
        out->dims[d] = t->ne[d];
    return true;
}

bitnet_status bitnet_inspect_stats(bitnet_inspect *in, size_t i, bitnet_tensor_stats *out,
                                   bitnet_error *err)
{
    if (!in || !out)
        return bnet_fail(err, BITNET_ARGUMENT, "inspect: inspect and out must not be NULL");
    if (i >= bnet_gguf_n_tensors(in->gguf))
        return bnet_fail(err, BITNET_ARGUMENT, "inspect: tensor %zu, the file has %zu", i,
                         bnet_gguf_n_tensors(in->gguf));
    bnet_tensor_stats(bnet_gguf_tensor_at(in->gguf, i), NULL, out);
    return BITNET_OK;
}
