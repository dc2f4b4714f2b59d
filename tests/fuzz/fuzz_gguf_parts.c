/* fuzz_gguf_parts.c - GGUF files put together from parts that are right or odd one by one: types,
 * counts, lengths, nesting, dimensions, offsets, the same name twice. Bytes alone (fuzz_gguf.c)
 * seldom keep a file whole behind its first fault; here what follows an odd part is still a file.
 *
 * Input: a program; every byte that is missing is 0, which is the right part. */
#include "fuzz/gguf_touch.h"

#include <stdio.h>

#include "base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

typedef struct program {
    const uint8_t *at, *end;
    bnet_str out;
} program;

static unsigned next(program *p)
{
    return p->at < p->end ? *p->at++ : 0;
}

static void put(program *p, uint64_t value, size_t n)
{
    bnet_str_add(&p->out, &value, n);
}

/* The number that is right, or another one. */
static uint64_t odd(program *p, uint64_t right)
{
    static const uint64_t values[] = {0,          1,          2,          7,          31,
                                      32,         33,         255,        4096,       1ull << 16,
                                      UINT32_MAX, 1ull << 32, 1ull << 61, 1ull << 62, 1ull << 63,
                                      UINT64_MAX, INT64_MAX,  1ull << 40};
    unsigned b = next(p);
    return b < 192 ? right : b < 208 ? right + b - 200 : values[b % BNET_COUNT(values)];
}

static void put_string(program *p, const char *s)
{
    put(p, odd(p, strlen(s)), 8);
    bnet_str_puts(&p->out, s);
}

static void put_value(program *p, unsigned type, int depth);

static void put_array(program *p, int depth)
{
    static const unsigned kinds[] = {BNET_GGUF_I32,   BNET_GGUF_STRING, BNET_GGUF_F32, BNET_GGUF_U8,
                                     BNET_GGUF_ARRAY, BNET_GGUF_BOOL,   BNET_GGUF_U64, 13};
    unsigned kind = kinds[next(p) % BNET_COUNT(kinds)], n = next(p) % 6;
    put(p, odd(p, kind), 4);
    put(p, odd(p, n), 8);
    for (unsigned i = 0; i < n; i++)
        put_value(p, kind, depth + 1);
}

static void put_value(program *p, unsigned type, int depth)
{
    static const uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    static const char *const texts[] = {"llama",       "",    "bitnet-b1.58",
                                        "\xff\x1b[2J", "a b", "\xe2\x96"};
    if (type == BNET_GGUF_STRING)
        put_string(p, texts[next(p) % BNET_COUNT(texts)]);
    else if (type == BNET_GGUF_ARRAY && depth < 12)
        put_array(p, depth);
    else if (type < BNET_COUNT(sizes))
        put(p, odd(p, 32), sizes[type]);
}

static void put_key(program *p)
{
    static const char *const keys[] = {"general.architecture",
                                       "general.alignment",
                                       "a",
                                       "b",
                                       "",
                                       "llama.block_count",
                                       "tokenizer.ggml.tokens",
                                       "A.b c",
                                       "tokenizer.ggml.token_type",
                                       "general.name"};
    put_string(p, keys[next(p) % BNET_COUNT(keys)]);
    unsigned type = next(p) % 14;
    put(p, odd(p, type), 4);
    put_value(p, type, 0);
}

/* Returns where the next tensor begins. */
static uint64_t put_tensor(program *p, unsigned i, uint64_t offset)
{
    static const unsigned types[] = {BNET_F32, BNET_F16, BNET_I2_S, BNET_Q6_K, BNET_Q8_0, 99};
    char name[32];
    unsigned b = next(p), n_dims = next(p) % 4 + 1;
    uint64_t n = 1;
    snprintf(name, sizeof name, "blk.%u.t", b < 240 ? i : b % 2);
    put_string(p, name);
    put(p, odd(p, n_dims), 4);
    for (unsigned d = 0; d < n_dims; d++) {
        uint64_t dim = d ? 1 + next(p) % 3 : 32u << next(p) % 4;
        n *= dim;
        put(p, odd(p, dim), 8);
    }
    unsigned type = types[next(p) % BNET_COUNT(types)];
    put(p, odd(p, type), 4);
    put(p, odd(p, offset), 8);
    return offset + (n * (type == BNET_F32 ? 4 : 2) + 31) / 32 * 32;
}

static void build(program *p)
{
    unsigned n_keys = next(p) % 12, n_tensors = next(p) % 8;
    uint64_t end = 0;
    bnet_str_puts(&p->out, "GGUF");
    put(p, odd(p, 3), 4);
    put(p, odd(p, n_tensors), 8);
    put(p, odd(p, n_keys), 8);
    for (unsigned i = 0; i < n_keys; i++)
        put_key(p);
    for (unsigned i = 0; i < n_tensors; i++)
        end = put_tensor(p, i, end);
    while (p->out.n % 32)
        bnet_str_putc(&p->out, '\0');
    for (uint64_t i = 0; i < BNET_MIN(odd(p, end), (uint64_t)1 << 16); i++)
        bnet_str_putc(&p->out, (char)i);
}

static void drop(void *user, bitnet_log_level level, const char *module, const char *text)
{
    *(size_t *)user += strlen(text) + strlen(module) + (size_t)level;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    program p = {.at = data, .end = data + n};
    bnet_gguf *g = NULL;
    bitnet_error err = {0};
    size_t logged = 0;
    bnet_log log = {drop, &logged};
    build(&p);
    uint8_t *file = p.out.failed ? NULL : malloc(p.out.n); /* a sanitizer sees its end */
    if (!file)
        abort();
    memcpy(file, p.out.data, p.out.n);
    bitnet_status st = bnet_gguf_open_memory(file, p.out.n, "fuzz", &log, &g, &err);
    if (st != BITNET_OK && (st != BITNET_MODEL || !strstr(err.message, "(offset 0x")))
        abort(); /* every refusal of bytes says where */
    volatile uint64_t used = st == BITNET_OK ? touch_all(g) + logged : 0;
    (void)used;
    bnet_gguf_close(g);
    free(file);
    bnet_str_free(&p.out);
    return 0;
}
