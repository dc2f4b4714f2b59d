/* fuzz_chat.c - any template text for the choice, any messages through rendering.
 *
 * Input: byte 0 chooses template (bits 0-2; 7: the one the file has) and vocabulary (bit 3) and
 * whether a reply begins (bit 4); the rest is fields separated by 0xF8, a byte no UTF-8 has: first
 * the file's chat template, then messages, each a role letter and its text. What must hold: no
 * crash; a rendered conversation, tokenized with special tokens, has exactly the special tokens of
 * the same conversation with harmless texts. */
#include "text/chat.h"

#include "../unit/text/vocab_build.h"

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "fuzz_chat: %s\n", #what);                                             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#define MAX_MESSAGES 8
#define SEPARATOR    0xf8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void choose(vocab *v, bool odd)
{
    bpe_base(v);
    vocab_add(v, "<|im_start|>", 3, 0);
    vocab_add(v, "<|im_end|>", 4, 0);
    vocab_add(v, "<|user|>", 3, 0);
    vocab_add(v, "<|assistant|>", 3, 0);
    if (!odd)
        return;
    vocab_add(v, "< |eot_id|>", 3, 0); /* resists breaking */
    vocab_add(v, "!<|", 4, 0);         /* swallows the template's */
    vocab_add(v, "\n\n", 4, 0);
    vocab_add(v, "x", 3, 0);
    vocab_add(v, "\xe2\x98\x83", 2, 0);
    v->bos = -1;
    v->arch = "llama";
}

static size_t special_ids(const bnet_tokenizer *t, const bnet_str *s, int32_t *ids, size_t cap)
{
    bnet_ids all = {0};
    size_t n = 0;
    CHECK(bnet_tokenize(t, s->n ? s->data : "", s->n, BITNET_TEXT_SPECIAL, &all, NULL, NULL) ==
          BITNET_OK);
    for (size_t i = 0; i < all.n; i++)
        if (bnet_token_special(t, all.data[i]) || bnet_token_stops(t, all.data[i])) {
            CHECK(n < cap);
            ids[n++] = all.data[i];
        }
    bnet_free(all.data);
    return n;
}

static void check_special(const bnet_chat_template *c, const bnet_tokenizer *t,
                          const bitnet_message *messages, size_t n, bool reply, const bnet_str *out)
{
    bitnet_message harmless[MAX_MESSAGES];
    int32_t got[128], wanted[128];
    bnet_str other = {0};
    for (size_t i = 0; i < n; i++)
        harmless[i] = (bitnet_message){messages[i].role, "a"};
    CHECK(bnet_chat_render(c, t, harmless, n, reply, &other, NULL) == BITNET_OK);
    size_t n_got = special_ids(t, out, got, 128), n_wanted = special_ids(t, &other, wanted, 128);
    CHECK(n_got == n_wanted && memcmp(got, wanted, n_got * sizeof *got) == 0);
    bnet_str_free(&other);
}

static void render(const bnet_chat_template *c, const bnet_tokenizer *t,
                   const bitnet_message *messages, size_t n, bool reply)
{
    bnet_str out = {0};
    bitnet_error err = {0};
    bitnet_status status = bnet_chat_render(c, t, messages, n, reply, &out, &err);
    if (status == BITNET_OK)
        check_special(c, t, messages, n, reply, &out);
    else
        CHECK(status == BITNET_ARGUMENT && err.message[0] && out.n == 0);
    bnet_str_free(&out);
}

/* Cuts the fields; each ends in a NUL of its own. Returns how many there are. */
static size_t cut(char *s, size_t n, char **fields, size_t cap)
{
    size_t count = 1;
    fields[0] = s;
    for (size_t i = 0; i < n && count < cap; i++)
        if ((unsigned char)s[i] == SEPARATOR) {
            s[i] = '\0';
            fields[count++] = s + i + 1;
        }
    s[n] = '\0';
    return count;
}

static const char *role_of(char letter)
{
    switch (letter) {
    case 's':
        return "system";
    case 'u':
        return "user";
    case 'a':
        return "assistant";
    case '0':
        return NULL;
    default:
        return "nobody";
    }
}

/* Opened once each: writing files is slow. */
static const bnet_tokenizer *vocabulary(bool odd)
{
    static bnet_tokenizer *opened[2];
    static bnet_gguf *files[2];
    static vocab v;
    if (!opened[odd]) {
        choose(&v, odd);
        files[odd] = vocab_write(&v);
        CHECK(files[odd]);
        CHECK(bnet_tokenizer_open(files[odd], 0, NULL, &opened[odd], NULL) == BITNET_OK);
    }
    return opened[odd];
}

static const bnet_chat_template *detect(const bnet_tokenizer *t, bool odd, const char *chat)
{
    static vocab v;
    choose(&v, odd);
    v.n = 1; /* the choice looks at the template, the architecture and t */
    v.n_merges = 0;
    v.chat = *chat ? chat : NULL;
    bnet_gguf *g = vocab_write(&v);
    CHECK(g);
    bitnet_template_match match;
    const bnet_chat_template *c = bnet_chat_detect(g, t, &match);
    bnet_gguf_close(g);
    return c;
}

static void run(unsigned choice, bool odd, bool reply, char **fields, size_t n_fields)
{
    bitnet_message messages[MAX_MESSAGES];
    size_t n = 0;
    const bnet_tokenizer *t = vocabulary(odd);
    for (size_t i = 1; i < n_fields; i++) {
        bool empty = fields[i][0] == '\0';
        messages[n++] =
            (bitnet_message){empty ? "user" : role_of(fields[i][0]), empty ? NULL : fields[i] + 1};
    }
    const bnet_chat_template *c =
        choice == 7 ? detect(t, odd, fields[0]) : bnet_chat_at((int)choice);
    if (!c)
        return;
    CHECK(bnet_chat_by_name(bnet_chat_name(c)) == c);
    render(c, t, messages, n, reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    char *fields[MAX_MESSAGES + 1];
    if (n_bytes == 0)
        return 0;
    char *copy = malloc(n_bytes);
    CHECK(copy);
    memcpy(copy, data + 1, n_bytes - 1);
    size_t n = cut(copy, n_bytes - 1, fields, MAX_MESSAGES + 1);
    run(data[0] & 7, data[0] >> 3 & 1, data[0] >> 4 & 1, fields, n);
    free(copy);
    return 0;
}
