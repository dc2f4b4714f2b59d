/* GGUF, wrong files: one row per fault, each with its status and a piece of its own message;
 * truncation at every byte; random single-byte changes. Files end at an unreadable page, and no row
 * may need more than 64 MB. */
#include "test.h"

#include "fuzz/gguf_touch.h"
#include "gguf_build.h"

#include <float.h>
#include <math.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#if defined(__has_feature)
#define HAS(x) __has_feature(x)
#else
#define HAS(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || HAS(address_sanitizer)
/* of the sanitiser's runtime; its header is not everywhere */
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t),
                                              void (*on_free)(const volatile void *));
#define ASAN 1
#else
#define ASAN 0
#endif
#if defined(__SANITIZE_THREAD__) || HAS(thread_sanitizer)
#define TSAN 1
#else
#define TSAN 0
#endif

#define MEMORY_LIMIT (64u << 20)

static build b;
static uint8_t *guard_end; /* files are copied to end here; the page behind cannot be read */

/* ---- makers ---- */

#define ANY 0x55 /* fills data: codes of zeros, a positive scale */

static void tensors_begin(uint64_t n)
{
    put_header(&b, n, 0);
}

static void data(size_t n)
{
    put_pad(&b, 32);
    put_fill(&b, ANY, n);
}

static void one(uint64_t ne0, uint64_t ne1, uint32_t type, uint64_t offset, size_t n)
{
    tensors_begin(1);
    put_info(&b, "t", ne0, ne1, type, offset);
    data(n);
}

/* one key, whose value the caller appends; enough bytes follow for the count of keys to be believed
 */
static void key(const char *name, uint32_t vtype)
{
    put_header(&b, 0, 1);
    put_key(&b, name, vtype);
}

static void header_words(uint32_t version, uint64_t n_tensors, uint64_t n_kv)
{
    put_header(&b, n_tensors, n_kv);
    memcpy(b.bytes + 4, &version, 4);
}

static void empty(void)
{
    b.n = 0;
}
static void short_magic(void)
{
    header_words(3, 0, 0), b.n = 3;
}
static void bad_magic(void)
{
    header_words(3, 0, 0), b.bytes[0] = 'g';
}
/* what people give instead of a model */
#define FOREIGN(name, bytes)                                                                       \
    static void name(void)                                                                         \
    {                                                                                              \
        b.n = 0, put(&b, bytes, sizeof bytes - 1);                                                 \
    }
FOREIGN(lfs_pointer,
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1187801280\n")
FOREIGN(lfs_cut, "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize")
FOREIGN(html_page, "\xef\xbb\xbf\n <!DOCTYPE html><html><head><title>Log in</title>")
FOREIGN(json_error, "{\"error\":\"Repository not found\"}")
FOREIGN(xml_error, "<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>")
FOREIGN(text_error, "Entry not found")
FOREIGN(safetensors, "\x20\0\0\0\0\0\0\0{\"w\":{\"dtype\":\"F32\",\"shape\":[]}}")
FOREIGN(pytorch_zip, "PK\3\4\0\0\x08\x08\0\0archive/data.pkl")
FOREIGN(pickle, "\x80\2}q\0(X\6\0\0\0weight")
FOREIGN(ggml_file, "lmgg\x20\x03\0\0\0\0\0\0")
FOREIGN(ggjt_file, "tjgg\3\0\0\0\0\0\0\0")
FOREIGN(gzip_file, "\x1f\x8b\x08\0\0\0\0\0")
FOREIGN(llamafile, "MZqFpD='\n\0\0\0\0\0")
FOREIGN(zeros, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0")
FOREIGN(other_binary, "\x7f"
                      "ELF\2\1\1\0\0\0\0\0")

static void magic_only(void)
{
    header_words(3, 0, 0), b.n = 4;
}
static void version_0(void)
{
    header_words(0, 0, 0);
}
static void version_1(void)
{
    header_words(1, 0, 0);
}
static void version_4(void)
{
    header_words(4, 0, 0);
}
static void big_endian(void)
{
    header_words(0x03000000, 0, 0);
}
static void no_n_tensors(void)
{
    header_words(3, 0, 0), b.n = 11;
}
static void no_n_kv(void)
{
    header_words(3, 0, 0), b.n = 20;
}
static void many_tensors(void)
{
    header_words(3, 65537, 0);
}
static void most_tensors(void)
{
    header_words(3, UINT64_MAX, 0);
}
static void hollow_tensors(void)
{
    header_words(3, 1000, 0), put_fill(&b, 0, 900);
}
static void many_keys(void)
{
    header_words(3, 0, 65537);
}
static void most_keys(void)
{
    header_words(3, 0, UINT64_C(1) << 63);
}
static void hollow_keys(void)
{
    header_words(3, 0, 100), put_fill(&b, 0, 900);
}

static void key_empty(void)
{
    key("", 4), put_fill(&b, 0, 16);
}
static void key_nul(void)
{
    put_header(&b, 0, 1);
    put_bytes(&b, "a\0b", 3);
    put_u32(&b, 0), put_u8(&b, 0);
}
static void key_nul_last(void)
{
    put_header(&b, 0, 2);
    put_key(&b, "one", 0), put_u8(&b, 1);
    put_bytes(&b, "ab", 3); /* with its NUL */
    put_u32(&b, 0), put_u8(&b, 0);
}
static void key_long(void)
{
    put_header(&b, 0, 1);
    put_u64(&b, 65536), put_fill(&b, 'k', 65536), put_u32(&b, 0), put_u8(&b, 0);
}
static void key_huge(void)
{
    put_header(&b, 0, 1);
    put_u64(&b, UINT64_C(1) << 60), put_fill(&b, 'k', 40);
}
static void key_past_end(void)
{
    put_header(&b, 0, 1);
    put_u64(&b, 1000), put_fill(&b, 'k', 40);
}
static void key_cut(void)
{
    put_header(&b, 0, 2);
    put_key(&b, "a.rather.long.key.here", 0), put_u8(&b, 1), put_fill(&b, 0, 7);
}
static void key_twice(void)
{
    put_header(&b, 0, 3);
    put_key(&b, "one", 0), put_u8(&b, 1);
    put_key(&b, "two", 0), put_u8(&b, 1);
    put_key(&b, "one", 4), put_u32(&b, 1);
}
static void vtype_13(void)
{
    key("k", 13), put_fill(&b, 0, 16);
}
static void vtype_max(void)
{
    key("k", UINT32_MAX), put_fill(&b, 0, 16);
}
static void vtype_cut(void)
{
    put_header(&b, 0, 1), put_str(&b, "abcdefgh"), put_fill(&b, 0, 3);
}
static void u32_cut(void)
{
    key("abcd", 4), put_fill(&b, 0, 3);
}
static void f64_cut(void)
{
    key("abcd", 12), put_fill(&b, 0, 7);
}
static void string_cut(void)
{
    key("abcd", 8), put_fill(&b, 0, 7);
}
static void string_max(void)
{
    key("k", 8), put_u64(&b, UINT64_MAX), put_fill(&b, 'x', 9);
}
static void string_one_more(void)
{
    key("k", 8), put_u64(&b, 10), put_fill(&b, 'x', 9);
}
static void elem_cut(void)
{
    key("abcd", 9), put_fill(&b, 0, 2);
}
static void elem_13(void)
{
    key("k", 9), put_u32(&b, 13), put_u64(&b, 1), put_fill(&b, 0, 9);
}
static void nested(void)
{
    key("k", 9), put_u32(&b, 9), put_u64(&b, 1), put_fill(&b, 0, 32);
}
static void count_cut(void)
{
    key("abcd", 9), put_u32(&b, 4), put_fill(&b, 0, 5);
}
static void count_over(void)
{
    key("k", 9), put_u32(&b, 0), put_u64(&b, (1u << 30) + 1), put_fill(&b, 0, 9);
}
static void count_wrap(void)
{
    key("k", 9), put_u32(&b, 10), put_u64(&b, UINT64_C(1) << 61), put_fill(&b, 0, 9);
}
static void count_hollow(void)
{
    key("k", 9), put_u32(&b, 10), put_u64(&b, 1u << 30), put_fill(&b, 0, 9);
}
static void strings_hollow(void)
{
    key("k", 9), put_u32(&b, 8), put_u64(&b, 1u << 29), put_fill(&b, 0, 9);
}
static void strings_long(void)
{
    key("k", 9), put_u32(&b, 8), put_u64(&b, 2);
    put_str(&b, "abcdefghij"), put_u64(&b, 99), put_fill(&b, 'x', 9);
}
static void strings_cut(void)
{
    key("k", 9), put_u32(&b, 8), put_u64(&b, 3);
    put_str(&b, "abcdefghij"), put_str(&b, ""), put_fill(&b, 0, 7);
}

static void align_i32(void)
{
    key("general.alignment", 5), put_u32(&b, 32);
}
static void align_u64(void)
{
    key("general.alignment", 10), put_u64(&b, 32);
}
static void align_string(void)
{
    key("general.alignment", 8), put_str(&b, "32");
}
static void align_0(void)
{
    key("general.alignment", 4), put_u32(&b, 0);
}
static void align_24(void)
{
    key("general.alignment", 4), put_u32(&b, 24);
}
static void align_2m(void)
{
    key("general.alignment", 4), put_u32(&b, 1u << 21);
}

static void name_empty(void)
{
    tensors_begin(1), put_info(&b, "", 8, 1, 0, 0), data(64);
}
static void name_64(void)
{
    char name[65];
    memset(name, 'n', 64);
    name[64] = '\0';
    tensors_begin(1), put_info(&b, name, 8, 1, 0, 0), data(64);
}
static void name_huge(void)
{
    tensors_begin(1), put_u64(&b, UINT64_MAX - 7), data(64);
}
static void name_past_end(void)
{
    tensors_begin(1), put_u64(&b, 50), put_fill(&b, 'n', 40);
}
static void name_nul(void)
{
    tensors_begin(1), put_bytes(&b, "a\0b", 3), put_u32(&b, 1), put_u64(&b, 8), put_u32(&b, 0),
        put_u64(&b, 0);
    data(64);
}
static void name_nul_last(void)
{
    tensors_begin(2), put_info(&b, "one", 8, 1, 0, 0), put_bytes(&b, "ab", 3), put_u32(&b, 1),
        put_u64(&b, 8), put_u32(&b, 0), put_u64(&b, 32);
    data(64);
}
static void name_twice(void)
{
    tensors_begin(2), put_info(&b, "same", 8, 1, 0, 0), put_info(&b, "same", 8, 1, 0, 32), data(64);
}
static void dims(uint32_t n_dims, const uint64_t *ne, int n)
{
    tensors_begin(1), put_str(&b, "shape"), put_u32(&b, n_dims);
    for (int i = 0; i < n; i++)
        put_u64(&b, ne[i]);
    put_u32(&b, 0), put_u64(&b, 0), data(64);
}
static void dims_0(void)
{
    dims(0, NULL, 0);
}
static void dims_5(void)
{
    dims(5, (const uint64_t[]){2, 2, 2, 2, 2}, 5);
}
static void dims_max(void)
{
    dims(UINT32_MAX, NULL, 0);
}
static void dim_zero(void)
{
    dims(1, (const uint64_t[]){0}, 1);
}
static void dim_zero_late(void)
{
    dims(3, (const uint64_t[]){8, 1, 0}, 3);
}
static void dim_wrap(void)
{
    dims(4, (const uint64_t[]){1u << 16, 1u << 16, 1u << 16, 1u << 16}, 4);
}
static void dim_2_63(void)
{
    dims(2, (const uint64_t[]){UINT64_C(1) << 62, 2}, 2);
}
static void dims_cut(void)
{
    tensors_begin(1), put_str(&b, "abcdefghijklmnopqrstu"), put_fill(&b, 0, 3);
}
static void dim_cut(void)
{
    tensors_begin(1), put_str(&b, "abcdefghijklmnop"), put_u32(&b, 2), put_fill(&b, 1, 15);
}
static void type_cut(void)
{
    tensors_begin(1), put_str(&b, "abcdefghij"), put_u32(&b, 1), put_u64(&b, 8), put_fill(&b, 0, 3);
}
static void offset_cut(void)
{
    tensors_begin(1), put_str(&b, "abcdefghij"), put_u32(&b, 1), put_u64(&b, 8), put_u32(&b, 0),
        put_fill(&b, 0, 7);
}
static void info_cut(void)
{
    tensors_begin(2), put_info(&b, "a.name.of.thirty-two.bytes.long.", 8, 1, 0, 0),
        put_fill(&b, 0, 7);
}
static void type_99(void)
{
    one(8, 1, 99, 0, 64);
}
static void type_31(void)
{
    one(8, 1, 31, 0, 64);
}
static void type_37(void)
{
    one(8, 1, 37, 0, 64);
}
static void type_ours(void)
{
    one(32, 1, BNET_MXFP4, 0, 64);
}
static void type_max(void)
{
    one(8, 1, UINT32_MAX, 0, 64);
}

static void block_q8_0(void)
{
    one(33, 1, BNET_Q8_0, 0, 256);
}
static void block_q6_k(void)
{
    one(128, 2, BNET_Q6_K, 0, 512);
}
static void block_tq2_0(void)
{
    one(8640, 1, BNET_TQ2_0, 0, 4096);
}
static void block_i2s(void)
{
    one(64, 2, BNET_I2_S, 0, 64);
}
static void block_mxfp4(void)
{
    one(33, 1, 39, 0, 64);
}
static void size_wrap(void)
{
    one(UINT64_C(1) << 62, 1, BNET_F32, 0, 64);
}
static void rows_r4(void)
{
    one(64, 3, BNET_IQ2_BN_R4, 0, 64);
}
static void size_exabyte(void)
{
    one(UINT64_C(1) << 60, 1, BNET_F32, 0, 64);
}
static void size_one_more(void)
{
    one(17, 1, BNET_F32, 0, 64);
}
static void offset_odd(void)
{
    one(8, 1, BNET_F32, 8, 64);
}
static void offset_end(void)
{
    one(8, 1, BNET_F32, 64, 64);
}
static void offset_max(void)
{
    one(8, 1, BNET_F32, UINT64_MAX - 31, 64);
}
static void no_data(void)
{
    tensors_begin(1), put_info(&b, "t", 8, 1, 0, 0);
}
static void two(uint64_t ne_a, uint64_t offset_a, uint64_t ne_b, uint64_t offset_b)
{
    tensors_begin(2), put_info(&b, "a", ne_a, 1, 0, offset_a),
        put_info(&b, "b", ne_b, 1, 0, offset_b), data(256);
}
static void overlap(void)
{
    two(16, 0, 8, 32);
}
static void overlap_by_one(void)
{
    put_header(&b, 2, 1);
    put_key(&b, "general.alignment", 4), put_u32(&b, 1);
    put_info(&b, "a", 8, 1, 0, 0), put_info(&b, "b", 8, 1, 0, 31), put_fill(&b, ANY, 64);
}
static void overlap_inside(void)
{
    two(8, 64, 64, 0);
}
static void same_place(void)
{
    two(8, 32, 16, 32);
}
static void overlap_many(void)
{
    tensors_begin(40);
    for (int i = 0; i < 40; i++) {
        char name[2] = {(char)('0' + i), 0};
        put_info(&b, name, i == 20 ? 9 : 8, 1, 0, (uint64_t)(39 - i) * 32);
    }
    data(40 * 32);
}
static void i2s_qk256(void)
{
    one(256, 8, BNET_I2_S, 0, 512);
}
static void i2s_blocks(void)
{
    one(256, 8, BNET_I2_S, 0, 640);
}
static void i2s_short(void)
{
    one(256, 8, BNET_I2_S, 0, 480);
}
static void i2s_long(void)
{
    one(256, 8, BNET_I2_S, 0, 4096);
}
static void i2s_ambiguous(void)
{
    one(128, 1, BNET_I2_S, 0, 64), memset(b.bytes + b.n - 32, 0, 32);
}
static void i2s_crowded(void)
{
    tensors_begin(2), put_info(&b, "w", 256, 8, BNET_I2_S, 0), put_info(&b, "next", 8, 1, 0, 256),
        data(1024);
}
static void mxfp4_short(void)
{
    one(512, 64, 39, 0, 7520);
}
static void q2_0_short(void)
{
    one(256, 2, 42, 0, 130);
}
static void tl1_short(void)
{
    one(64, 2, 38, 0, 63);
}

/* values that a typed read refuses */
static void a_string(void)
{
    key("k", 8), put_str(&b, "seven");
}
static void a_float(void)
{
    key("k", 6), put_f32(&b, 7);
}
static void a_bool(void)
{
    key("k", 7), put_u8(&b, 1);
}
static void an_array(void)
{
    key("k", 9), put_u32(&b, 4), put_u64(&b, 2), put_u32(&b, 1), put_u32(&b, 2);
}
static void floats(void)
{
    key("k", 9), put_u32(&b, 6), put_u64(&b, 2), put_f32(&b, 1), put_f32(&b, 2);
}
static void u32_101(void)
{
    key("k", 4), put_u32(&b, 101);
}
static void i8_minus(void)
{
    key("k", 1), put_u8(&b, 0xff);
}
static void u64_max(void)
{
    key("k", 10), put_u64(&b, UINT64_MAX);
}
static void i64_min(void)
{
    key("k", 11), put_u64(&b, (uint64_t)INT64_MIN);
}
static void f32_nan(void)
{
    key("k", 6), put_f32(&b, NAN);
}
static void f64_inf(void)
{
    key("k", 12), put_f64(&b, -INFINITY);
}
static void f32_zero(void)
{
    key("k", 6), put_f32(&b, 0);
}
static void f64_big(void)
{
    key("k", 12), put_f64(&b, 1e300);
}

static bitnet_status read_int(const bnet_gguf *g, bitnet_error *err)
{
    int64_t v = 5;
    bitnet_status st = bnet_gguf_int(g, "k", 1, 100, &v, NULL, err);
    assert_int_equal(v, 5);
    return st;
}
static bitnet_status read_float(const bnet_gguf *g, bitnet_error *err)
{
    double v = 5;
    bitnet_status st = bnet_gguf_float(g, "k", FLT_MIN, 1, &v, NULL, err);
    assert_true(v == 5);
    return st;
}
static bitnet_status read_bool(const bnet_gguf *g, bitnet_error *err)
{
    bool v = false;
    return bnet_gguf_bool(g, "k", &v, NULL, err);
}
static bitnet_status read_string(const bnet_gguf *g, bitnet_error *err)
{
    bnet_span v;
    return bnet_gguf_string(g, "k", &v, NULL, err);
}
static bitnet_status read_array(const bnet_gguf *g, bitnet_error *err)
{
    const bnet_gguf_kv *v;
    return bnet_gguf_array(g, "k", BNET_GGUF_I32, &v, err);
}
static bitnet_status read_strings(const bnet_gguf *g, bitnet_error *err)
{
    const bnet_gguf_kv *v;
    return bnet_gguf_array(g, "k", BNET_GGUF_STRING, &v, err);
}

typedef struct bad {
    void (*make)(void);
    bitnet_status (*read)(const bnet_gguf *g, bitnet_error *err); /* NULL: opening fails */
    bitnet_status status;
    const char *says;
    const char *name;
} bad;

#define OPEN(make, says)       {make, NULL, BITNET_MODEL, says, #make},
#define READ(make, read, says) {make, read, BITNET_MODEL, says, #make " " #read},
static const bad rows[] = {
#include "gguf_bad_rows.inc"
};

/* ---- the checks ---- */

static const uint8_t *at_guard(const uint8_t *p, size_t n)
{
    memcpy(guard_end - n, p, n);
    return guard_end - n;
}

#if ASAN
static volatile size_t
    asked; /* bytes since the row began: freed or not, a row must not want more */
static void count_malloc(const volatile void *p, size_t n)
{
    (void)p;
    asked += n;
}
static void count_free(const volatile void *p)
{
    (void)p;
}
#endif

/* From now on a row that needs too much gets MEMORY instead of its own status. */
static void limit_memory(void)
{
#if ASAN
    assert_true(__sanitizer_install_malloc_and_free_hooks(count_malloc, count_free) > 0);
    bnet_free(bnet_alloc(1000));
    assert_true(asked >= 1000); /* it counts */
    asked = 0;
#elif !TSAN
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%lu", &pages) == 1) {
        rlim_t now = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
        struct rlimit limit = {now + MEMORY_LIMIT, RLIM_INFINITY};
        assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    }
    if (f)
        fclose(f);
    void *p = bnet_alloc(MEMORY_LIMIT);
    if (p)
        print_message("the memory limit has no effect here (an emulator?)\n");
    bnet_free(p);
#endif
}

static bitnet_status run_row(const bad *row, bitnet_error *err)
{
    bnet_gguf *g = NULL;
    row->make();
    assert_true(b.n < BUILD_CAP);
    bitnet_status st =
        bnet_gguf_open_memory(at_guard(b.bytes, b.n), b.n, "bad.gguf", NULL, &g, err);
    if (row->read) {
        if (st != BITNET_OK)
            fail_msg("%s: does not open: %s", row->name, err->message);
        st = row->read(g, err);
    }
    bnet_gguf_close(g);
    return st;
}

static void check_row(const bad *row, const bitnet_error *err, bitnet_status st)
{
    if (st != row->status || err->status != st)
        fail_msg("%s: status %d, expected %d: %s", row->name, st, row->status, err->message);
    if (!strstr(err->message, row->says))
        fail_msg("%s: '%s' does not say '%s'", row->name, err->message, row->says);
    if (strncmp(err->message, "bad.gguf: ", 10) != 0 || !strstr(err->message, "(offset 0x"))
        fail_msg("%s: '%s' does not name file and offset", row->name, err->message);
#if ASAN
    if (asked > MEMORY_LIMIT)
        fail_msg("%s: asked for %zu bytes", row->name, asked);
    asked = 0;
#endif
}

static void every_row(void **state)
{
    (void)state;
    enum { N = sizeof rows / sizeof rows[0] };
    static bitnet_error errors[N];
    limit_memory();
    for (size_t i = 0; i < N; i++)
        check_row(&rows[i], &errors[i], run_row(&rows[i], &errors[i]));
    for (size_t i = 0; i < N; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(errors[i].message, errors[j].message) == 0)
                fail_msg("%s and %s say the same: %s", rows[i].name, rows[j].name,
                         errors[i].message);
    print_message("%d malformed files refused, each in its own words\n", (int)N);
    assert_true(N >= 60);
}

static void make_good(void);

/* A file cut in its tensor data tells how many of its bytes are there; one cut by a byte or two may
 * as well be of another kind. */
static void incomplete(void **state)
{
    (void)state;
    make_good();
    size_t n_whole = b.n, n_told = 0;
    for (size_t n = n_whole - 340; n < n_whole - 32; n += 4) {
        bnet_gguf *g = NULL;
        bitnet_error err = {0};
        char says[128];
        snprintf(says, sizeof says, "cut: incomplete, %zu of %zu bytes are there: download", n,
                 n_whole);
        assert_int_equal(bnet_gguf_open_memory(at_guard(b.bytes, n), n, "cut", NULL, &g, &err),
                         BITNET_MODEL);
        if (!strstr(err.message, says))
            fail_msg("cut to %zu of %zu bytes: %s", n, n_whole, err.message);
        n_told++;
    }
    assert_true(n_told > 50);
}

/* A folder is no file; one with a checkpoint or a model in it says what to do. */
static void folders(void **state)
{
    (void)state;
    char folder[] = TEST_BINARY_DIR "/folder.XXXXXX", file[sizeof folder + 32];
    bitnet_error err = {0};
    bnet_gguf *g = NULL;
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/b.gguf", folder);
    fclose(fopen(file, "wb"));
    assert_int_equal(bnet_gguf_open(folder, NULL, &g, &err), BITNET_IO);
    assert_non_null(strstr(err.message, "is a directory; name a file in it, such as b.gguf"));
    unlink(file);
    snprintf(file, sizeof file, "%s/\033[2Jb.gguf", folder);
    fclose(fopen(file, "wb"));
    assert_int_equal(bnet_gguf_open(folder, NULL, &g, &err), BITNET_IO);
    assert_non_null(strstr(err.message, "such as "));
    assert_null(strchr(err.message, '\033'));
    unlink(file);
    snprintf(file, sizeof file, "%s/config.json", folder);
    fclose(fopen(file, "wb"));
    assert_int_equal(bnet_gguf_open(folder, NULL, &g, &err), BITNET_IO);
    assert_non_null(
        strstr(err.message, "Hugging Face checkpoint; convert it first: bitnet convert"));
    assert_non_null(strstr(err.message, folder));
    unlink(file);
    rmdir(folder);
}

/* A small right file that ends with the last byte of its last tensor: every prefix of it is wrong.
 */
static void make_good(void)
{
    put_header(&b, 4, 6);
    put_key(&b, "general.architecture", 8), put_str(&b, "bitnet");
    put_key(&b, "k.u32", 4), put_u32(&b, 7);
    put_key(&b, "k.f64", 12), put_f64(&b, 1e-5);
    put_key(&b, "k.tokens", 9), put_u32(&b, 8), put_u64(&b, 3), put_str(&b, "a"), put_str(&b, ""),
        put_str(&b, "bc");
    put_key(&b, "k.types", 9), put_u32(&b, 5), put_u64(&b, 2), put_u32(&b, 1), put_u32(&b, 3);
    put_key(&b, "general.alignment", 4), put_u32(&b, 32);
    put_info(&b, "norm", 5, 1, BNET_F32, 0);
    put_info(&b, "proj", 256, 2, BNET_I2_S, 32);
    put_info(&b, "embd", 32, 2, BNET_Q8_0, 192);
    put_info(&b, "tq", 256, 1, BNET_TQ1_0, 288);
    data(288 + 54);
}

static void every_truncation(void **state)
{
    (void)state;
    make_good();
    bnet_gguf *g = NULL;
    assert_int_equal(bnet_gguf_open_memory(at_guard(b.bytes, b.n), b.n, "good", NULL, &g, NULL),
                     BITNET_OK);
    assert_true(touch_all(g) > 0);
    bnet_gguf_close(g);
    for (size_t n = 0; n < b.n; n++) {
        bitnet_error err = {0};
        if (bnet_gguf_open_memory(at_guard(b.bytes, n), n, "cut", NULL, &g, &err) != BITNET_MODEL)
            fail_msg("cut to %zu of %zu bytes it was not refused: %s", n, b.n, err.message);
        assert_non_null(strstr(err.message, "(offset 0x"));
    }
}

static void random_bytes(void **state)
{
    (void)state;
    uint64_t seed = 7, n_opened = 0, n_refused = 0;
    make_good();
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < 20000; i++) {
        bnet_gguf *g = NULL;
        bitnet_error err = {0};
        size_t at = test_rand(&seed) % b.n;
        uint8_t old = b.bytes[at];
        b.bytes[at] = (uint8_t)test_rand(&seed);
        bitnet_status st =
            bnet_gguf_open_memory(at_guard(b.bytes, b.n), b.n, "changed", NULL, &g, &err);
        b.bytes[at] = old;
        if (st == BITNET_OK)
            touch_all(g), n_opened++;
        else if (st == BITNET_MODEL)
            n_refused++;
        else
            fail_msg("byte %zu: status %d: %s", at, st, err.message);
        bnet_gguf_close(g);
    }
    print_message("%llu opened, %llu refused\n", (unsigned long long)n_opened,
                  (unsigned long long)n_refused);
    assert_true(n_opened > 1000 && n_refused > 1000);
}

/* What is no file at all is an I/O error, and a fifo is refused without waiting for a writer. */
static void not_files(void **state)
{
    (void)state;
    const char *fifo = TEST_BINARY_DIR "/test_gguf_bad.fifo";
    bitnet_error err = {0};
    bnet_gguf *g = NULL;
    assert_int_equal(bnet_gguf_open(TEST_BINARY_DIR "/no/such.gguf", NULL, &g, &err), BITNET_IO);
    assert_non_null(strstr(err.message, "no/such.gguf"));
    assert_int_equal(bnet_gguf_open(TEST_BINARY_DIR, NULL, &g, &err), BITNET_IO);
    assert_non_null(strstr(err.message, "directory"));
    unlink(fifo);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(bnet_gguf_open(fifo, NULL, &g, &err), BITNET_IO);
    assert_non_null(strstr(err.message, "pipe"));
    unlink(fifo);
    assert_null(g);
}

/* The path may be long: the message keeps its end and all of the reason. */
static void long_path(void **state)
{
    (void)state;
    char path[2000];
    bitnet_error err = {0};
    bnet_gguf *g = NULL;
    memset(path, 'p', sizeof path);
    memcpy(path + sizeof path - 12, "/model.gguf", 12);
    bad_magic();
    assert_int_equal(bnet_gguf_open_memory(b.bytes, b.n, path, NULL, &g, &err), BITNET_MODEL);
    assert_memory_equal(err.message, "...pp", 5);
    assert_non_null(strstr(err.message, "/model.gguf: header: not a GGUF file"));
    assert_non_null(strstr(err.message, "(offset 0x0)"));
}

/* `test_gguf_bad --seeds DIR` writes the small files as a seed corpus for tests/fuzz/fuzz_gguf.c.
 */
static void write_seed(const char *dir, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = b.n <= 2048 ? fopen(path, "wb") : NULL;
    if (f) {
        fwrite(b.bytes, 1, b.n, f);
        fclose(f);
    }
}

static int write_seeds(const char *dir)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(rows[i].name, " "), rows[i].name);
        rows[i].make();
        write_seed(dir, name);
    }
    make_good();
    write_seed(dir, "good");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--seeds") == 0)
        return write_seeds(argv[2]);
    size_t n = (BUILD_CAP + 65535) & ~(size_t)65535; /* whole pages of any size up to 64 KiB */
    uint8_t *p = mmap(NULL, n + 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + n, 65536, PROT_NONE) != 0)
        return 1;
    guard_end = p + n;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row),    cmocka_unit_test(every_truncation),
        cmocka_unit_test(incomplete),   cmocka_unit_test(folders),
        cmocka_unit_test(random_bytes), cmocka_unit_test(not_files),
        cmocka_unit_test(long_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
