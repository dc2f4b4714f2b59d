/* chat_driver.c - renders conversations with a file's own chat template, for a script. Standard
 * input has pairs of records, a template and a request in JSON, each a 32-bit length and its bytes.
 * For each pair the answer is a status and two records: the text or the message, and the names of
 * the special and user-defined tokens in that text, one per line. The vocabulary has the tokens of
 * many families. */
#include "text/chat.h"

#include "text/vocab.h"
#include "unit/text/vocab_build.h"

static const struct {
    const char *name;
    int type; /* 3: control, 4: user-defined */
} tokens[] = {
    {"<s>", 3},
    {"</s>", 3},
    {"<unk>", 3},
    {"<|im_start|>", 3},
    {"<|im_end|>", 3},
    {"<|endoftext|>", 3},
    {"<|end|>", 3},
    {"<|system|>", 3},
    {"<|user|>", 3},
    {"<|assistant|>", 3},
    {"<|python_tag|>", 3},
    {"<|eom_id|>", 3},
    {"<start_of_turn>", 3},
    {"<end_of_turn>", 3},
    {"[INST]", 3},
    {"[/INST]", 3},
    {"[TOOL_CALLS]", 3},
    {"[AVAILABLE_TOOLS]", 4},
    {"[gMASK]", 3},
    {"<sop>", 3},
    {"<|observation|>", 3},
    {"<\xef\xbd\x9cUser\xef\xbd\x9c>", 3},
    {"<\xef\xbd\x9c"
     "Assistant\xef\xbd\x9c>",
     3},
    {"<\xef\xbd\x9c"
     "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
     3},
    {"<|START_OF_TURN_TOKEN|>", 3},
    {"<|END_OF_TURN_TOKEN|>", 3},
    {"<|USER_TOKEN|>", 3},
    {"<|start_of_role|>", 3},
    {"<|end_of_role|>", 3},
    {"<tool_call>", 4},
    {"</tool_call>", 4},
    {"<think>", 4},
    {"</think>", 4},
    {"<b>", 4}, /* of a text's own: no template here writes it */
    {"    ", 4},
};

static char *record(uint32_t *n)
{
    if (fread(n, sizeof *n, 1, stdin) != 1)
        return NULL;
    char *bytes = malloc((size_t)*n + 1);
    if (bytes && fread(bytes, 1, *n, stdin) == *n) {
        bytes[*n] = '\0';
        return bytes;
    }
    free(bytes);
    return NULL;
}

static void tell(const char *bytes, size_t n)
{
    uint32_t length = (uint32_t)n;
    fwrite(&length, sizeof length, 1, stdout);
    fwrite(bytes ? bytes : "", 1, n, stdout);
}

static void names_of(const bnet_tokenizer *t, const bnet_str *text, bnet_str *names)
{
    bnet_ids ids = {0};
    if (bnet_tokenize(t, text->n ? text->data : "", text->n, BITNET_TEXT_BOS | BITNET_TEXT_SPECIAL,
                      &ids, NULL, NULL) != BITNET_OK)
        bnet_str_puts(names, "cannot be tokenized\n");
    for (size_t i = 0; i < ids.n; i++) {
        bnet_token_type type = bnet_type_of(t, (size_t)ids.data[i]);
        size_t n;
        if (!bnet_type_special(type) && type != BNET_TOKEN_USER)
            continue;
        const char *name = bnet_token_bytes(t, ids.data[i], &n);
        bnet_str_add(names, name, n);
        bnet_str_putc(names, '\n');
    }
    bnet_free(ids.data);
}

static void answer(const bnet_tokenizer *t, const char *request, size_t n)
{
    bitnet_error err = {0};
    bnet_str text = {0}, names = {0};
    int32_t status = (int32_t)bnet_chat_render_json(bnet_chat_by_name("file"), t,
                                                    (bnet_span){request, n}, &text, &err);
    if (!status)
        names_of(t, &text, &names);
    fwrite(&status, sizeof status, 1, stdout);
    tell(status ? err.message : text.data, status ? strlen(err.message) : text.n);
    tell(names.data, names.n);
    fflush(stdout);
    bnet_str_free(&text);
    bnet_str_free(&names);
}

static bnet_tokenizer *open_with(const char *source, bnet_gguf **g)
{
    static vocab v;
    bnet_tokenizer *t = NULL;
    bitnet_error err = {0};
    bpe_base(&v);
    v.add_bos = 1;
    v.chat = source;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        vocab_add(&v, tokens[i].name, tokens[i].type, 0);
    *g = vocab_write(&v);
    if (*g && bnet_tokenizer_open(*g, 0, NULL, &t, &err) != BITNET_OK)
        fprintf(stderr, "chat_driver: %s\n", err.message);
    return t;
}

int main(void)
{
    uint32_t n;
    char *last = NULL;
    bnet_gguf *g = NULL;
    bnet_tokenizer *t = NULL;
    for (char *source; (source = record(&n)) != NULL;) {
        if (last && strcmp(last, source) == 0) {
            free(source);
        } else {
            bnet_tokenizer_close(t);
            bnet_gguf_close(g);
            free(last);
            last = source;
            t = open_with(source, &g);
        }
        char *request = record(&n);
        if (!t || !request)
            return 1;
        answer(t, request, n);
        free(request);
    }
    bnet_tokenizer_close(t);
    bnet_gguf_close(g);
    free(last);
    return 0;
}
