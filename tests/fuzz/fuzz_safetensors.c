/* fuzz_safetensors.c - the bytes of a safetensors file: whatever they are, the reader refuses them
 * or gives tensors that lie inside them. Half of the inputs are taken as the JSON header alone,
 * which reaches deeper. */
#include <stdlib.h>

#include "convert/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* Every tensor of an accepted file must be readable to its last byte. */
static void check(const bnet_st_file *f, const uint8_t *data, size_t n)
{
    char text[64];
    unsigned sum = 0;
    for (size_t i = 0; i < f->n_tensors; i++) {
        const bnet_st_tensor *t = &f->tensors[i];
        if (t->data < data || t->end < t->begin || t->data + (t->end - t->begin) > data + n)
            abort();
        if (t->end > t->begin)
            sum += t->data[0] + t->data[t->end - t->begin - 1];
        sum += (unsigned)bnet_st_shape_text(t, text, sizeof text)[0];
        sum += (unsigned)bnet_st_dtype_name(t->dtype)[0];
    }
    if (sum == UINT32_MAX) /* keeps the reads */
        abort();
}

static void parse(const uint8_t *data, size_t n)
{
    bnet_st_file f;
    bitnet_error err = {0};
    if (bnet_st_parse(data, n, "fuzz", &f, &err) == BITNET_OK)
        check(&f, data, n);
    else if (!err.message[0] || f.tensors)
        abort();
    bnet_st_close(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    enum { DATA = 64 };
    if (n_bytes == 0 || data[0] != '{') {
        parse(data, n_bytes);
        return 0;
    }
    uint8_t *file = calloc(1, 8 + n_bytes + DATA);
    if (!file)
        return 0;
    bnet_put_u64(file, n_bytes);
    memcpy(file + 8, data, n_bytes);
    parse(file, 8 + n_bytes + DATA);
    free(file);
    return 0;
}
