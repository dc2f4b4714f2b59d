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

bitnet_status bnet_splitter_open(bnet_split_kind kind, bnet_splitter **out, bitnet_error *err)
{
    bnet_splitter *s = bnet_calloc(1, sizeof *s);
    pcre2_compile_context *compile = NULL;
    bitnet_status status = BITNET_OK;
    int code = 0;
    size_t at = 0;
    if (!s || !(s->general = pcre2_general_context_create(take, give, NULL)) ||
        !(compile = pcre2_compile_context_create(s->general))) {
        status = bnet_no_memory(err, "splitter");
        goto done;
    }
    s->code = pcre2_compile((PCRE2_SPTR)patterns[kind], PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_ANCHORED | PCRE2_DOLLAR_ENDONLY, &code, &at, compile);
    if (!s->code) {
        status = code == PCRE2_ERROR_HEAP_FAILED
                     ? bnet_no_memory(err, "splitter")
                     : bnet_fail(err, BITNET_ERROR, "splitter: PCRE2 error %d at %zu", code, at);
        goto done;
    }
    /* Compiled to machine code where the system lets us, interpreted elsewhere: the pieces are the
     * same. */
    (void)pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE);
done:
    pcre2_compile_context_free(compile);
    if (status == BITNET_OK)
        *out = s;
    else
        bnet_splitter_close(s);
    return status;
}

void bnet_splitter_close(bnet_splitter *s)
{
    if (!s)
        return;
    pcre2_code_free(s->code);
    pcre2_general_context_free(s->general);
    bnet_free(s);
}

/* Length of the valid UTF-8 that text begins with. */
static size_t valid_run(const char *text, size_t n)
{
    size_t i = 0;
    for (int len; i < n && (len = bnet_utf8_len(text + i, n - i)) > 0;)
        i += (size_t)len;
    return i;
}

typedef struct matcher {
    const pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *limits;
} matcher;

/* The end of the piece that begins at `at`; 0 with err filled on failure. */
static size_t piece_end(const matcher *m, const char *text, size_t n, size_t at, bitnet_error *err)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    int rc = pcre2_match(m->code, subject, n, at, PCRE2_NO_UTF_CHECK, m->data, m->limits);
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) /* the small stack of compiled code: interpret */
        rc = pcre2_match(m->code, subject, n, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data,
                         m->limits);
    if (rc > 0 && pcre2_get_ovector_pointer(m->data)[1] > at)
        return pcre2_get_ovector_pointer(m->data)[1];
    if (rc == PCRE2_ERROR_NOMEMORY || rc == PCRE2_ERROR_HEAPLIMIT)
        bnet_no_memory(err, "splitter");
    else
        bnet_fail(err, BITNET_ERROR, "splitter: PCRE2 error %d at byte %zu of the text", rc, at);
    return 0;
}

static bitnet_status split_run(const matcher *m, const char *text, size_t n, bnet_piece_fn fn,
                               void *user, bitnet_error *err)
{
    bitnet_error here = {0};
    for (size_t at = 0, end; at < n; at = end) {
        end = piece_end(m, text, n, at, &here);
        if (!end)
            return bnet_fail(err, here.status, "%s", here.message);
        bitnet_status status = fn(user, text + at, end - at, err);
        if (status != BITNET_OK)
            return status;
    }
    return BITNET_OK;
}

static bitnet_status split_all(const matcher *m, const char *text, size_t n, bnet_piece_fn fn,
                               void *user, bitnet_error *err)
{
    bitnet_status status = BITNET_OK;
    for (size_t at = 0; at < n && status == BITNET_OK;) {
        size_t run = valid_run(text + at, n - at);
        if (run)
            status = split_run(m, text + at, run, fn, user, err);
        else
            status = fn(user, text + at, 1, err);
        at += run ? run : 1;
    }
    return status;
}

bitnet_status bnet_split_text(const bnet_splitter *s, const char *text, size_t n, bnet_piece_fn fn,
                              void *user, bitnet_error *err)
{
    matcher m = {.code = s->code};
    m.data = pcre2_match_data_create(1, s->general);
    m.limits = pcre2_match_context_create(s->general);
    bitnet_status status;
    if (m.data && m.limits) {
        /* Backtracking is linear in the text (a run of white space is tried three times). */
        pcre2_set_match_limit(m.limits,
                              (uint32_t)BNET_MIN((uint64_t)UINT32_MAX, 100000 + 8 * (uint64_t)n));
        pcre2_set_heap_limit(m.limits, HEAP_LIMIT_KIB);
        status = split_all(&m, text, n, fn, user, err);
    } else {
        status = bnet_no_memory(err, "splitter");
    }
    pcre2_match_context_free(m.limits);
    pcre2_match_data_free(m.data);
    return status;
}
