/* gguf_build.h - GGUF bytes by hand: knows nothing of the library's reader or writer, and writes
 * wrong files as readily as right ones. A fixed buffer; build_reset before every file. */
#ifndef TEST_GGUF_BUILD_H
#define TEST_GGUF_BUILD_H

#include <stdint.h>
#include <string.h>

#define BUILD_CAP (8 << 20)

typedef struct build {
    uint8_t bytes[BUILD_CAP];
    size_t n;
} build;

static inline void put(build *b, const void *p, size_t n)
{
    if (n > BUILD_CAP - b->n)
        n = BUILD_CAP - b->n;
    memcpy(b->bytes + b->n, p, n);
    b->n += n;
}

static inline void put_u8(build *b, uint8_t v)
{
    put(b, &v, 1);
}
static inline void put_u16(build *b, uint16_t v)
{
    put(b, &v, 2);
}
static inline void put_u32(build *b, uint32_t v)
{
    put(b, &v, 4);
}
static inline void put_u64(build *b, uint64_t v)
{
    put(b, &v, 8);
}
static inline void put_f32(build *b, float v)
{
    put(b, &v, 4);
}
static inline void put_f64(build *b, double v)
{
    put(b, &v, 8);
}
static inline void put_bytes(build *b, const char *s, size_t n)
{
    put_u64(b, n);
    put(b, s, n);
}
static inline void put_str(build *b, const char *s)
{
    put_bytes(b, s, strlen(s));
}
static inline void put_fill(build *b, uint8_t v, size_t n)
{
    while (n--)
        put_u8(b, v);
}
static inline void put_pad(build *b, size_t alignment)
{
    put_fill(b, 0, (alignment - b->n % alignment) % alignment);
}

static inline void put_header(build *b, uint64_t n_tensors, uint64_t n_kv)
{
    b->n = 0;
    put(b, "GGUF", 4);
    put_u32(b, 3);
    put_u64(b, n_tensors);
    put_u64(b, n_kv);
}

static inline void put_key(build *b, const char *key, uint32_t vtype)
{
    put_str(b, key);
    put_u32(b, vtype);
}

/* n_dims taken from the last dimension that is not 1 (at least one) */
static inline void put_info(build *b, const char *name, uint64_t ne0, uint64_t ne1, uint32_t type,
                            uint64_t offset)
{
    put_str(b, name);
    put_u32(b, ne1 == 1 ? 1 : 2);
    put_u64(b, ne0);
    if (ne1 != 1)
        put_u64(b, ne1);
    put_u32(b, type);
    put_u64(b, offset);
}

#endif
