/* split.c - the pre-tokenizer patterns, through PCRE2.
 *
 * The patterns say what the published regexes say, with three things made explicit: white space is
 * the Unicode property written out (PCRE2's \s under UCP also takes U+180E), contractions are ASCII
 * (case folding would admit U+017F for s), and quantifiers that never give back are possessive, so
 * a megabyte of one letter costs one pass.
 *
 * The text is cut at invalid bytes here and matched with NO_UTF_CHECK: letting PCRE2 validate would
 * cost a pass over the rest of the text at every piece. */
#include "text/split.h"

#include "base/str.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define SPACES                                                                                     \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"
#define WS     "[" SPACES "]"
#define NOT_WS "[^" SPACES "]"
#define OTHER  "[^" SPACES "\\p{L}\\p{N}]"
#define TAIL   WS "+(?!" NOT_WS ")|" WS "++"

static const char *const patterns[] = {
    [BNET_SPLIT_LLAMA3] = "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
                          "|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++"
                          "|\\p{N}{1,3}+"
                          "|\\x{20}?+" OTHER "++[\\r\\n]*+"
                          "|" WS "*[\\r\\n]++"
                          "|" TAIL,
    [BNET_SPLIT_GPT2] = "'(?:[stmd]|re|ve|ll)"
                        "|\\x{20}?+\\p{L}++"
                        "|\\x{20}?+\\p{N}++"
                        "|\\x{20}?+" OTHER "++"
                        "|" TAIL,
};

#define HEAP_LIMIT_KIB (64 * 1024)
#define SCAN_BYTES     ((size_t)1 << 20) /* between two questions */

struct bnet_splitter {
    pcre2_general_context *general; /* sends PCRE2's memory through ours */
    pcre2_code *code;
};

static void *take(size_t n, void *user)
{
    (void)user;
    return bnet_alloc(n);
}

static void give(void *p, void *user)
{
    (void)user;
    bnet_free(p);
}

/* NULL: no memory (the patterns are ours and sound). */
static pcre2_code *compile(bnet_split_kind kind, pcre2_general_context *general)
{
    pcre2_compile_context *context = pcre2_compile_context_create(general);
    int code;
    size_t at;
    if (!context)
        return NULL;
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)patterns[kind], PCRE2_ZERO_TERMINATED,
                                         PCRE2_UTF | PCRE2_ANCHORED, &code, &at, context);
    pcre2_compile_context_free(context);
    return compiled;
}

bitnet_status bnet_splitter_open(bnet_split_kind kind, bnet_splitter **out, bitnet_error *err)
{
    bnet_splitter *s = bnet_calloc(1, sizeof *s);
    if (!s || !(s->general = pcre2_general_context_create(take, give, NULL)) ||
        !(s->code = compile(kind, s->general))) {
        bnet_splitter_close(s);
        return bnet_no_memory(err, "splitter");
    }
    /* Compiled to machine code where the system lets us, interpreted elsewhere: the pieces are the
     * same. */
    (void)pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE);
    *out = s;
    return BITNET_OK;
}

void bnet_splitter_close(bnet_splitter *s)
{
    if (!s)
        return;
    pcre2_code_free(s->code);
    pcre2_general_context_free(s->general);
    bnet_free(s);
}

/* Sets *run to the length of the valid UTF-8 that text begins with. */
static bitnet_status valid_run(const char *text, size_t n, size_t *run, bnet_piece_fn fn,
                               void *user, bitnet_error *err)
{
    bitnet_status status = BITNET_OK;
    size_t i = 0;
    for (int len = 1; i < n && len > 0 && status == BITNET_OK;) {
        for (size_t end = i + BNET_MIN(n - i, SCAN_BYTES);
             i < end && (len = bnet_utf8_len(text + i, n - i)) > 0;)
            i += (size_t)len;
        if (i >= SCAN_BYTES)
            status = fn(user, text + i, 0, err);
    }
    *run = i;
    return status;
}

typedef struct matcher {
    const pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *limits;
} matcher;

/* Sets *end of the piece that begins at `at`. */
static bitnet_status next_piece(const matcher *m, const char *text, size_t n, size_t at,
                                size_t *end, bitnet_error *err)
{
    uint32_t how = PCRE2_NO_UTF_CHECK;
    int rc = pcre2_match(m->code, (PCRE2_SPTR)text, n, at, how, m->data, m->limits);
    if (rc < 0) /* the small stack of compiled code: interpret */
        rc = pcre2_match(m->code, (PCRE2_SPTR)text, n, at, how | PCRE2_NO_JIT, m->data, m->limits);
    if (rc < 0)
        return bnet_fail(err, rc == PCRE2_ERROR_NOMEMORY ? BITNET_MEMORY : BITNET_ERROR,
                         "splitter: PCRE2 error %d at byte %zu of %zu", rc, at, n);
    *end = pcre2_get_ovector_pointer(m->data)[1];
    assert(*end >
           at); /* no alternative of a pattern matches nothing, one matches every character */
    return BITNET_OK;
}

static bitnet_status split_run(const matcher *m, const char *text, size_t n, bnet_piece_fn fn,
                               void *user, bitnet_error *err)
{
    bitnet_status status = BITNET_OK;
    for (size_t at = 0, end = n; at < n && status == BITNET_OK; at = end) {
        status = next_piece(m, text, n, at, &end, err);
        if (status == BITNET_OK)
            status = fn(user, text + at, end - at, err);
    }
    return status;
}

static bitnet_status split_all(const matcher *m, const char *text, size_t n, bnet_piece_fn fn,
                               void *user, bitnet_error *err)
{
    bitnet_status status = BITNET_OK;
    for (size_t at = 0; at < n && status == BITNET_OK;) {
        size_t run;
        status = valid_run(text + at, n - at, &run, fn, user, err);
        if (status == BITNET_OK && run)
            status = split_run(m, text + at, run, fn, user, err);
        else if (status == BITNET_OK)
            status = fn(user, text + at, 1, err);
        at += run ? run : 1;
    }
    return status;
}

bitnet_status bnet_split_text(const bnet_splitter *s, const char *text, size_t n, bnet_piece_fn fn,
                              void *user, bitnet_error *err)
{
    matcher m = {.code = s->code};
    bitnet_status status = BITNET_MEMORY;
    m.data = pcre2_match_data_create(1, s->general);
    m.limits = pcre2_match_context_create(s->general);
    if (m.data && m.limits) {
        /* Backtracking is linear in the text: a run of white space is tried three times. */
        uint64_t limit = 100000 + 8 * (uint64_t)n;
        pcre2_set_match_limit(m.limits, (uint32_t)BNET_MIN(limit, (uint64_t)UINT32_MAX));
        pcre2_set_heap_limit(m.limits, HEAP_LIMIT_KIB);
        status = split_all(&m, text, n, fn, user, err);
    } else {
        bnet_no_memory(err, "splitter");
    }
    pcre2_match_context_free(m.limits);
    pcre2_match_data_free(m.data);
    return status;
}
