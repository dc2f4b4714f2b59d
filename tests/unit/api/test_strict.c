/* X_1: strict mode refuses weights that look damaged, with status SUSPICIOUS; a policy file says
 * what else is. */
#include "unit/engine/nano.h"

#include <math.h>
#include <unistd.h>

#include "bitnet_check.h"
#include "bitnet_tools.h"
#include "model/strict.h"
#include "format/codec.h"

/* A copy of the nano model in memory, to be damaged, and where its tensors lie. */
typedef struct copy {
    uint8_t *data;
    size_t n;
    bitnet_inspect *in;
} copy;

static copy copy_nano(void)
{
    copy c = {0};
    FILE *f = fopen(NANO_PATH, "rb");
    if (!f) {
        print_message("%s is missing\n", NANO_PATH);
        skip();
    }
    fseek(f, 0, SEEK_END);
    c.n = (size_t)ftell(f);
    rewind(f);
    c.data = malloc(c.n);
    assert_int_equal(fread(c.data, 1, c.n, f), c.n);
    fclose(f);
    OK(bitnet_inspect_open(NANO_PATH, &c.in, &err));
    return c;
}

static void copy_free(copy *c)
{
    free(c->data);
    bitnet_inspect_close(c->in);
}

static bitnet_inspect_tensor tensor(const copy *c, const char *name)
{
    bitnet_inspect_tensor t;
    for (size_t i = 0; bitnet_inspect_tensor_at(c->in, i, &t); i++)
        if (strcmp(t.name, name) == 0)
            return t;
    fail_msg("no tensor %s", name);
    return t;
}

static bitnet_status open_copy(const copy *c, bool strict, const char *policy, bitnet_error *err)
{
    bitnet_runtime *r = NULL;
    bitnet_engine *e = NULL;
    bitnet_runtime_options o;
    bitnet_engine_options eo;
    bitnet_runtime_options_init(&o);
    bitnet_engine_options_init(&eo);
    o.n_threads = 1;
    o.strict = strict;
    eo.policy_path = policy;
    bitnet_status st = bitnet_runtime_open(&o, &r, err);
    if (st == BITNET_OK)
        st = bitnet_engine_open_memory(r, c->data, c->n, &eo, &e, err);
    bitnet_engine_close(e);
    bitnet_runtime_close(r);
    return st;
}

static void put_f32(copy *c, uint64_t at, float x)
{
    memcpy(c->data + at, &x, sizeof x);
}

typedef enum damage {
    NOTHING,
    NAN_VALUE,
    INF_VALUE,
    ZEROS,
    SCALE_NAN,
    SCALE_ZERO,
    SCALE_NEGATIVE,
    CODE_3,
    ALL_CODES_1,
    ALL_CODES_2,
    TINY
} damage;

static void hurt(copy *c, const char *name, damage d)
{
    bitnet_inspect_tensor t = tensor(c, name);
    uint64_t scale = t.offset + t.n_elems / 4; /* of I2_S */
    switch (d) {
    case NAN_VALUE:
        put_f32(c, t.offset + 4, NAN);
        break;
    case INF_VALUE:
        put_f32(c, t.offset + 8, -INFINITY);
        break;
    case ZEROS:
        memset(c->data + t.offset, 0, t.n_bytes);
        break;
    case SCALE_NAN:
        put_f32(c, scale, NAN);
        break;
    case SCALE_ZERO:
        put_f32(c, scale, 0);
        break;
    case SCALE_NEGATIVE:
        put_f32(c, scale, -1);
        break;
    case CODE_3:
        c->data[t.offset + 17] |= 0x0c;
        break;
    case ALL_CODES_1:
        memset(c->data + t.offset, 0x55, t.n_elems / 4);
        break;
    case ALL_CODES_2:
        memset(c->data + t.offset, 0xaa, t.n_elems / 4);
        break;
    case TINY:
        for (uint64_t i = 0; i < t.n_elems; i++)
            put_f32(c, t.offset + 4 * i, 1e-7f);
        break;
    case NOTHING:
        break;
    }
}

static void X_1_suspicious_weights(void **state)
{
    (void)state;
    static const struct {
        const char *tensor;
        damage d;
        const char *says;
    } rows[] = {
        {"blk.0.attn_norm.weight", NOTHING, NULL},
        {"blk.0.attn_norm.weight", NAN_VALUE, "1 value is nan"},
        {"blk.1.ffn_norm.weight", INF_VALUE, "1 value is infinite"},
        {"output_norm.weight", ZEROS, "all zero"},
        {"blk.1.ffn_sub_norm.weight", TINY, "rms 1e-07"},
        {"blk.0.attn_q.weight", SCALE_NAN, "scale is nan"},
        {"blk.0.attn_k.weight", SCALE_ZERO, "scale is 0"},
        {"blk.0.ffn_up.weight", SCALE_NEGATIVE, "scale is -1"},
        {"blk.1.ffn_down.weight", CODE_3, "codes of 3"},
        {"blk.0.attn_v.weight", ALL_CODES_1, "all zero"},
        {"blk.0.attn_output.weight", ALL_CODES_2, "all weights are +1"},
        {"blk.1.attn_output.weight", ZEROS, "scale is 0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        copy c = copy_nano();
        bitnet_error err = {0};
        hurt(&c, rows[i].tensor, rows[i].d);
        bitnet_status st = open_copy(&c, true, NULL, &err);
        bool ok = rows[i].says ? st == BITNET_SUSPICIOUS && strstr(err.message, rows[i].tensor) &&
                                     strstr(err.message, rows[i].says) &&
                                     strstr(err.message, "1 tensor looks")
                               : st == BITNET_OK;
        if (!ok)
            fail_msg("row %zu, %s: status %d, \"%s\"; wanted \"%s\"", i, rows[i].tensor, (int)st,
                     err.message, rows[i].says ? rows[i].says : "ok");
        copy_free(&c);
    }
}

static void X_1_many_are_counted_few_are_named(void **state)
{
    (void)state;
    copy c = copy_nano();
    static const char *const names[] = {"attn_q", "attn_k", "attn_v", "ffn_up", "ffn_down"};
    char name[64];
    for (size_t i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "blk.0.%s.weight", names[i]);
        hurt(&c, name, CODE_3);
    }
    FAILS(open_copy(&c, true, NULL, &err), BITNET_SUSPICIOUS, "5 tensors look suspicious");
    OK(open_copy(&c, false, NULL, &err)); /* without strict mode a warning, code 3 is read as 0 */
    copy_free(&c);
}

/* ---- ternary weights that are not I2_S ---- */

enum { BLOCKS = 3, BLOCK = 256 };

typedef enum block_damage {
    SOUND,
    ZERO_BLOCK,      /* without weights, scale 0: legal */
    ZERO_BLOCK_LESS, /* without weights, scale below 0 */
    BLOCK_SCALE,     /* of the middle block */
    BLOCK_CODE_3
} block_damage;

typedef struct block_case {
    bnet_type type;
    block_damage d;
    float scale;
    const char *says; /* NULL: nothing to say */
} block_case;

static void make_blocks(const block_case *b, uint8_t *bytes, size_t block_bytes)
{
    float w[BLOCKS * BLOCK];
    bool zero = b->d == ZERO_BLOCK || b->d == ZERO_BLOCK_LESS;
    uint8_t *middle = bytes + block_bytes;
    for (int i = 0; i < BLOCKS * BLOCK; i++)
        w[i] = zero && i / BLOCK == 1 ? 0 : (float)(i % 3 - 1) * 0.5f;
    assert_true(bnet_encode_row(b->type, w, bytes, BLOCKS * BLOCK));
    if (b->d == BLOCK_CODE_3)
        middle[17] |= 0x0c;
    else if (b->d != SOUND) /* the scale is the last two bytes of either type */
        bnet_put_u16(middle + block_bytes - 2, bnet_f32_to_f16(b->scale));
}

/* One tensor of n values in a file at `path`. */
static void write_tensor(const char *path, const char *name, bnet_type type, uint64_t n,
                         const void *data)
{
    uint64_t n_bytes = 0;
    bnet_gguf_writer *w = bnet_gguf_writer_new();
    assert_non_null(w);
    assert_true(bnet_type_bytes(type, n, 1, &n_bytes));
    bnet_gguf_declare(w, name, type, &n, 1);
    OK(bnet_gguf_begin(w, path, &err));
    OK(bnet_gguf_data(w, data, (size_t)n_bytes, &err));
    OK(bnet_gguf_finish(w, &err));
    bnet_gguf_writer_free(w);
}

/* Strict mode and inspect say the same of the one tensor; NULL: nothing. */
static void check_file(const char *path, size_t row, const char *says)
{
    bnet_gguf *g = NULL;
    bitnet_inspect *in = NULL;
    bitnet_tensor_stats s;
    bitnet_error e = {0};
    OK(bnet_gguf_open(path, NULL, &g, &err));
    bitnet_status st = bnet_strict_weights(g, NULL, &e);
    bnet_gguf_close(g);
    OK(bitnet_inspect_open(path, &in, &err));
    OK(bitnet_inspect_stats(in, 0, &s, &err));
    bitnet_inspect_close(in);
    bool ok = says
                  ? st == BITNET_SUSPICIOUS && strstr(e.message, says) && strstr(s.suspicious, says)
                  : st == BITNET_OK && s.suspicious[0] == '\0';
    if (!ok)
        fail_msg("row %zu: status %d, \"%s\", inspect: \"%s\"; wanted \"%s\"", row, (int)st,
                 e.message, s.suspicious, says ? says : "nothing");
}

static void X_1_ternary_blocks(void **state)
{
    (void)state;
    static const block_case rows[] = {
        {BNET_TQ1_0, SOUND, 0, NULL},
        {BNET_TQ2_0, SOUND, 0, NULL},
        {BNET_TQ1_0, ZERO_BLOCK, 0, NULL},
        {BNET_TQ2_0, ZERO_BLOCK, 0, NULL},
        {BNET_TQ1_0, BLOCK_SCALE, 0.25f, NULL},
        {BNET_TQ1_0, ZERO_BLOCK_LESS, -0.5f, "1 block scales are bad, the first is -0.5"},
        {BNET_TQ2_0, ZERO_BLOCK_LESS, -0.5f, "1 block scales are bad, the first is -0.5"},
        {BNET_TQ1_0, BLOCK_SCALE, 0, "1 block scales are bad, the first is 0"},
        {BNET_TQ2_0, BLOCK_SCALE, 0, "1 block scales are bad, the first is 0"},
        {BNET_TQ1_0, BLOCK_SCALE, -0.25f, "1 block scales are bad, the first is -0.25"},
        {BNET_TQ2_0, BLOCK_SCALE, -0.25f, "1 block scales are bad, the first is -0.25"},
        {BNET_TQ1_0, BLOCK_SCALE, INFINITY, "1 block scales are bad, the first is inf"},
        {BNET_TQ2_0, BLOCK_SCALE, NAN, "1 block scales are bad, the first is"},
        {BNET_TQ2_0, BLOCK_CODE_3, 0, "1 code is 3"},
    };
    char path[] = "/tmp/bitnet-blocks-XXXXXX";
    close(mkstemp(path));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t bytes[BLOCKS * 66];
        size_t block_bytes = bnet_type_find((uint32_t)rows[i].type)->n_bytes;
        assert_true(block_bytes <= 66);
        make_blocks(&rows[i], bytes, block_bytes);
        write_tensor(path, "blk.0.attn_q.weight", rows[i].type, BLOCKS * BLOCK, bytes);
        check_file(path, i, rows[i].says);
    }
    remove(path);
}

static void X_1_separate_scales(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        float value;
        const char *says;
    } rows[] = {
        {"blk.0.attn_q.scale", 0.5f, NULL},
        {"blk.0.attn_q.scale", -0.5f, "scale is -0.5"},
        {"blk.0.attn_q.scale", 0, "scale is 0"},
        {"blk.0.attn_q.scale", NAN, "scale is nan"},
        {"blk.0.attn_q.scale", -INFINITY, "scale is -inf"},
        {"blk.0.attn_q.shift", -0.5f, NULL},
    };
    char path[] = "/tmp/bitnet-scale-XXXXXX";
    close(mkstemp(path));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_tensor(path, rows[i].name, BNET_F32, 1, &rows[i].value);
        check_file(path, i, rows[i].says);
    }
    remove(path);
}

/* Validation refuses in strict mode what a run would, and looks on without it. */
static void X_1_validation_is_strict_too(void **state)
{
    (void)state;
    char path[] = "/tmp/bitnet-strict-XXXXXX";
    copy c = copy_nano();
    hurt(&c, "blk.1.ffn_down.weight", CODE_3);
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, c.data, c.n) == (ssize_t)c.n);
    close(fd);
    for (int strict = 0; strict < 2; strict++) {
        bitnet_runtime_options o;
        bitnet_validate_options vo;
        bitnet_runtime *r = NULL;
        bitnet_validation *v = NULL;
        bitnet_runtime_options_init(&o);
        bitnet_validate_options_init(&vo);
        o.strict = strict;
        vo.model_path = path;
        vo.quick = true;
        vo.parts = BITNET_VALIDATE_MODEL;
        OK(bitnet_runtime_open(&o, &r, &err));
        if (strict)
            FAILS(bitnet_validate(r, &vo, &v, &err), BITNET_SUSPICIOUS, "ffn_down.weight");
        else
            OK(bitnet_validate(r, &vo, &v, &err));
        bitnet_validation_free(v);
        bitnet_runtime_close(r);
    }
    remove(path);
    copy_free(&c);
}

/* The model that comes with the program passes. */
static void X_1_story_is_sound(void **state)
{
    (void)state;
    bitnet_runtime *r = NULL;
    bitnet_engine *e = NULL;
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.strict = true;
    OK(bitnet_runtime_open(&o, &r, &err));
    OK(bitnet_engine_open(r, TEST_SOURCE_DIR "/models/story.gguf", NULL, &e, &err));
    bitnet_engine_close(e);
    bitnet_runtime_close(r);
}

/* ---- policies ---- */

static void B6_policies(void **state)
{
    (void)state;
    static const struct {
        bitnet_status status;
        const char *text, *says;
    } rows[] = {
        {BITNET_OK, "{\"version\": 1, \"policies\": []}", ""},
        {BITNET_OK,
         "{\"version\": 1, \"policies\": [{\"name\": \"other\", \"architecture\": \"llama\", "
         "\"rules\": [{\"tensor\": \"*\", \"min_rms\": 1e9, \"max_rms\": 1e10}]}]}",
         ""},
        {BITNET_OK,
         "{\"version\": 1, \"policies\": [{\"name\": \"wide\", \"architecture\": \"bitnet*\", "
         "\"weight_type\": \"i2_s\", \"rules\": [{\"tensor\": \"*norm.weight\", \"min_rms\": 1e-3, "
         "\"max_rms\": 1000}]}]}",
         ""},
        {BITNET_SUSPICIOUS,
         "{\"version\": 1, \"policies\": [{\"name\": \"narrow\", \"rules\": [{\"tensor\": "
         "\"output_norm.weight\", \"min_rms\": 50, \"max_rms\": 60.5}]}]}",
         "tensor output_norm.weight: rms"},
        {BITNET_SUSPICIOUS,
         "{\"version\": 1, \"policies\": [{\"name\": \"projections\", \"rules\": [{\"tensor\": "
         "\"blk.*.attn_q.weight\", \"min_rms\": 50, \"max_rms\": 60.5}]}]}",
         "policy \"projections\", rule \"blk.*.attn_q.weight\""},
        {BITNET_ARGUMENT, "{\"version\": 1", "line 1"},
        {BITNET_ARGUMENT, "[]", "\"version\": 1"},
        {BITNET_ARGUMENT, "{\"version\": 2, \"policies\": []}", "\"version\": 1"},
        {BITNET_ARGUMENT, "{\"version\": 1, \"policies\": [3]}", "policies[0]"},
        {BITNET_ARGUMENT,
         "{\"version\": 1, \"policies\": [{\"name\": \"x\", \"architecture\": 3, \"rules\": []}]}",
         "must be patterns"},
        {BITNET_ARGUMENT,
         "{\"version\": 1, \"policies\": [{\"name\": \"x\", \"rules\": [{\"tensor\": \"a\"}]}]}",
         "policy \"x\", rule 0: \"min_rms\""},
        {BITNET_ARGUMENT,
         "{\"version\": 1, \"policies\": [{\"name\": \"x\", \"rules\": [{\"tensor\": \"a\", "
         "\"min_rms\": 2, \"max_rms\": 1}]}]}",
         "above"},
    };
    copy c = copy_nano();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[] = "/tmp/bitnet-policy-XXXXXX";
        bitnet_error err = {0};
        int fd = mkstemp(path);
        assert_true(fd >= 0 && write(fd, rows[i].text, strlen(rows[i].text)) > 0);
        close(fd);
        bitnet_status st = open_copy(&c, false, path, &err);
        remove(path);
        if (st != rows[i].status || !strstr(err.message, rows[i].says))
            fail_msg("row %zu: status %d, \"%s\"; wanted %d, \"%s\"", i, (int)st, err.message,
                     (int)rows[i].status, rows[i].says);
    }
    FAILS(open_copy(&c, false, "/nowhere/at/all", &err), BITNET_IO, "/nowhere/at/all");
    /* the example has the field's ranges, outside of which one tensor of this small model is */
    FAILS(open_copy(&c, false, TEST_SOURCE_DIR "/docs/policy.example.json", &err),
          BITNET_SUSPICIOUS, "policy \"bitnet-b1.58, ternary file\"");
    copy_free(&c);
}

/* Both ends of a range belong to it: a tensor whose root mean square is exactly 0.5. */
static void B6_ends_of_a_range(void **state)
{
    (void)state;
    static const struct {
        const char *lo, *hi;
        bool passes;
    } rows[] = {{"0.5", "0.5", true},
                {"0.5", "0.75", true},
                {"0.25", "0.5", true},
                {"0.25", "0.4999999", false},
                {"0.5000001", "0.75", false}};
    copy c = copy_nano();
    bitnet_inspect_tensor t = tensor(&c, "output_norm.weight");
    for (uint64_t i = 0; i < t.n_elems; i++)
        put_f32(&c, t.offset + 4 * i, i % 2 ? 0.5f : -0.5f);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[] = "/tmp/bitnet-policy-XXXXXX", text[256];
        bitnet_error err = {0};
        int n = snprintf(text, sizeof text,
                         "{\"version\": 1, \"policies\": [{\"name\": \"ends\", \"rules\": [{"
                         "\"tensor\": \"output_norm.weight\", \"min_rms\": %s, \"max_rms\": "
                         "%s}]}]}",
                         rows[i].lo, rows[i].hi);
        int fd = mkstemp(path);
        assert_true(fd >= 0 && write(fd, text, (size_t)n) == n);
        close(fd);
        bitnet_status st = open_copy(&c, false, path, &err);
        remove(path);
        if (st != (rows[i].passes ? BITNET_OK : BITNET_SUSPICIOUS))
            fail_msg("%s to %s: status %d, %s", rows[i].lo, rows[i].hi, (int)st, err.message);
    }
    copy_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(X_1_suspicious_weights),
        cmocka_unit_test(X_1_many_are_counted_few_are_named),
        cmocka_unit_test(X_1_ternary_blocks),
        cmocka_unit_test(X_1_separate_scales),
        cmocka_unit_test(X_1_validation_is_strict_too),
        cmocka_unit_test(X_1_story_is_sound),
        cmocka_unit_test(B6_policies),
        cmocka_unit_test(B6_ends_of_a_range),
    };
    return cmocka_run_group_tests_name("strict", tests, NULL, NULL);
}
