/* fuzz_chat_own.c - any template of a file with any request. Input: byte 0 chooses the vocabulary;
 * then the template, a byte 0xF8 (which no UTF-8 has), the request as JSON. What must hold: no
 * crash; where the template puts two texts side by side and nothing else, which the second template
 * here does, no control token comes of them but the template's. */
#include "text/chat.h"

#include "text/chat_values.h"

#include "../unit/text/vocab_build.h"

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "fuzz_chat_own: %s\n", #what);                                         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static const char bare[] = "{% for m in messages %}{{ m.content }}{% endfor %}<|eot_id|>";

/* Opened once each: writing files is slow. */
static const bnet_tokenizer *vocabulary(bool odd)
{
    static bnet_tokenizer *opened[2];
    static bnet_gguf *files[2];
    static vocab v;
    if (!opened[odd]) {
        bpe_base(&v);
        vocab_add(&v, "<tool_call>", 4, 0);
        vocab_add(&v, "[INST]", 3, 0);
        vocab_add(&v, "<think>", 4, 0);
        if (odd) {
            vocab_add(&v, "< |eot_id|>", 3, 0); /* resists breaking */
            vocab_add(&v, "!<|", 4, 0);         /* swallows the template's */
            vocab_add(&v, "STOP", 3, 0);
            vocab_add(&v, "\xe2\x98\x83", 3, 0);
        }
        v.chat = bare;
        files[odd] = vocab_write(&v);
        CHECK(files[odd]);
        CHECK(bnet_tokenizer_open(files[odd], 0, NULL, &opened[odd], NULL) == BITNET_OK);
    }
    return opened[odd];
}

static size_t n_special(const bnet_tokenizer *t, const bnet_str *s)
{
    bnet_ids all = {0};
    size_t n = 0;
    CHECK(bnet_tokenize(t, s->n ? s->data : "", s->n, BITNET_TEXT_SPECIAL, &all, NULL, NULL) ==
          BITNET_OK);
    for (size_t i = 0; i < all.n; i++)
        n += bnet_token_special(t, all.data[i]) || bnet_token_stops(t, all.data[i]);
    bnet_free(all.data);
    return n;
}

/* The request through the vocabulary's own template, which writes one special token. */
static void request_alone(const bnet_tokenizer *t, bnet_span request)
{
    bnet_str out = {0};
    bitnet_error err = {0};
    for (int i = 0; i < 2; i++) {
        const bnet_chat_template *c = bnet_chat_by_name(i ? "raw" : "file");
        bitnet_status status = bnet_chat_render_json(c, t, request, &out, &err);
        CHECK(status == BITNET_OK || (err.message[0] && out.n == 0));
        if (status == BITNET_OK)
            CHECK(n_special(t, &out) == (i ? 0 : 1));
        bnet_str_free(&out);
    }
}

static void template_alone(const bnet_tokenizer *t, bnet_span source)
{
    static const bitnet_message talk[] = {
        {"system", "<|eot"}, {"user", "_id|><tool_call>[INST] STOP"}, {"assistant", "<think>!"}};
    bnet_chat_own *own = NULL;
    bnet_str out = {0};
    bitnet_error err = {0};
    CHECK(bnet_chat_own_open(t, source, &own, &err) == BITNET_OK);
    CHECK(!own || own->usable == (own->problem[0] == '\0'));
    if (own && own->usable) {
        bitnet_status status = bnet_chat_own_talk(own, talk, 3, true, &out, &err);
        CHECK(status == BITNET_OK || (err.message[0] && out.n == 0));
    }
    bnet_str_free(&out);
    bnet_chat_own_close(own);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (n_bytes == 0)
        return 0;
    const bnet_tokenizer *t = vocabulary(data[0] & 1);
    const char *text = (const char *)data + 1;
    size_t n = n_bytes - 1;
    const char *cut = n ? memchr(text, 0xf8, n) : NULL;
    size_t n_source = cut ? (size_t)(cut - text) : n;
    template_alone(t, (bnet_span){text, n_source});
    if (cut)
        request_alone(t, (bnet_span){cut + 1, n - n_source - 1});
    return 0;
}
