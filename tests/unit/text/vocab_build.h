/* vocab_build.h - small vocabularies for tests and fuzzers, written by the library's GGUF writer to
 * a temporary file, opened and unlinked. Start from bpe_base or spm_base, change what the case is
 * about, then vocab_write. */
#ifndef TEST_VOCAB_BUILD_H
#define TEST_VOCAB_BUILD_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/gguf.h"

#define VOCAB_CAP 1024

typedef struct vocab {
    const char *model, *pre, *arch, *chat; /* NULL: the key is left out */
    char text[VOCAB_CAP][48];
    size_t text_n[VOCAB_CAP]; /* 0: the text is NUL-terminated */
    int32_t type[VOCAB_CAP];
    float score[VOCAB_CAP];
    size_t n;
    size_t n_types, n_scores; /* lengths of the arrays as written; SIZE_MAX: left out */
    const char *merges[64];
    size_t n_merges;                /* SIZE_MAX: left out */
    int64_t bos, eos, eot, unknown; /* -1: left out */
    int add_bos, space_prefix;      /* -1: left out */
    const char *wrong_type; /* this key is written as an f32 and nothing else under its name */
} vocab;

static inline int32_t vocab_add(vocab *v, const char *text, int32_t type, float score)
{
    snprintf(v->text[v->n], sizeof v->text[0], "%s", text);
    v->type[v->n] = type;
    v->score[v->n] = score;
    return (int32_t)v->n++;
}

static inline void vocab_keys(vocab *v)
{
    v->bos = v->eos = v->eot = v->unknown = -1;
    v->add_bos = v->space_prefix = -1;
    v->n_types = v->n_scores = VOCAB_CAP; /* as many as there are tokens */
}

/* 256 byte characters (ids 0..255 in byte order), some merged words, the special tokens of two
 * families. */
static inline void bpe_base(vocab *v)
{
    static const char *const merges[] = {"h e",
                                         "l l",
                                         "he ll",
                                         "hell o",
                                         "\xc4\xa0 w",
                                         "o r",
                                         "\xc4\xa0w or",
                                         "a a",
                                         "aa aa",
                                         "\xc3\x83 \xc2\xa9",
                                         "\xc4\x8a \xc4\x8a",
                                         "\xc4\xa0 \xc4\xa0"};
    memset(v, 0, sizeof *v);
    vocab_keys(v);
    v->model = "gpt2";
    v->pre = "llama-bpe";
    v->arch = "bitnet-b1.58";
    uint32_t next = 0x100;
    for (uint32_t b = 0; b < 256; b++) {
        bool plain = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        char utf8[5] = {0};
        bnet_utf8_encode(plain ? b : next++, utf8);
        vocab_add(v, utf8, 1, 0);
    }
    v->n_merges = sizeof merges / sizeof *merges;
    memcpy(v->merges, merges, sizeof merges);
    for (size_t i = 0; i < v->n_merges; i++) {
        char joined[48];
        const char *space = strchr(merges[i], ' ');
        snprintf(joined, sizeof joined, "%.*s%s", (int)(space - merges[i]), merges[i], space + 1);
        vocab_add(v, joined, 1, 0);
    }
    v->bos = vocab_add(v, "<|begin_of_text|>", 3, 0);
    v->eos = vocab_add(v, "<|end_of_text|>", 3, 0);
    vocab_add(v, "<|start_header_id|>", 3, 0);
    vocab_add(v, "<|end_header_id|>", 3, 0);
    vocab_add(v, "<|eot_id|>", 3, 0);
    vocab_add(v, "<|eot_id|>!", 3, 0); /* the longest match wins */
    vocab_add(v, "<|user_defined|>", 4, 0);
}

/* <unk> <s> </s>, 256 byte tokens (ids 3..258), some words. */
static inline void spm_base(vocab *v)
{
    static const char *const words[] = {"\xe2\x96\x81",
                                        "h",
                                        "e",
                                        "l",
                                        "o",
                                        "w",
                                        "r",
                                        "d",
                                        "he",
                                        "ll",
                                        "hell",
                                        "hello",
                                        "\xe2\x96\x81hello",
                                        "\xe2\x96\x81w",
                                        "or",
                                        "ld",
                                        "\xe2\x96\x81wor",
                                        "\xe2\x96\x81world",
                                        "\xe2\x96\x81\xe2\x96\x81",
                                        "\xc3\xa9",
                                        "a",
                                        "aa",
                                        "aaaa",
                                        "</",
                                        "s",
                                        ">",
                                        "</s",
                                        "<"};
    memset(v, 0, sizeof *v);
    vocab_keys(v);
    v->model = "llama";
    v->arch = "llama";
    v->n_merges = SIZE_MAX;
    v->unknown = vocab_add(v, "<unk>", 2, 0);
    v->bos = vocab_add(v, "<s>", 3, 0);
    v->eos = vocab_add(v, "</s>", 3, 0);
    for (int b = 0; b < 256; b++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)b);
        vocab_add(v, text, 6, 0);
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        vocab_add(v, words[i], 1, -(float)(40 - (int)strlen(words[i])));
    vocab_add(v, "[TOOL]", 4, -1000);
}

static inline bool vocab_key(const vocab *v, bnet_gguf_writer *w, const char *key, bool wanted)
{
    if (v->wrong_type && strcmp(v->wrong_type, key) == 0) {
        bnet_gguf_put_f32(w, key, 1);
        return false;
    }
    return wanted;
}

static inline void vocab_put_ids(const vocab *v, bnet_gguf_writer *w)
{
    const struct {
        const char *key;
        int64_t id;
    } ids[] = {{"tokenizer.ggml.bos_token_id", v->bos},
               {"tokenizer.ggml.eos_token_id", v->eos},
               {"tokenizer.ggml.eot_token_id", v->eot},
               {"tokenizer.ggml.unknown_token_id", v->unknown}};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (vocab_key(v, w, ids[i].key, ids[i].id != -1))
            bnet_gguf_put_u32(w, ids[i].key, (uint32_t)ids[i].id);
    if (vocab_key(v, w, "tokenizer.ggml.add_bos_token", v->add_bos >= 0))
        bnet_gguf_put_bool(w, "tokenizer.ggml.add_bos_token", v->add_bos);
    if (vocab_key(v, w, "tokenizer.ggml.add_space_prefix", v->space_prefix >= 0))
        bnet_gguf_put_bool(w, "tokenizer.ggml.add_space_prefix", v->space_prefix);
}

static inline void vocab_put_string(const vocab *v, bnet_gguf_writer *w, const char *key,
                                    const char *s)
{
    if (vocab_key(v, w, key, s != NULL))
        bnet_gguf_put_string(w, key, s, strlen(s));
}

static inline void vocab_put_arrays(const vocab *v, bnet_gguf_writer *w)
{
    bnet_span spans[VOCAB_CAP], merges[64];
    for (size_t i = 0; i < v->n; i++)
        spans[i] = (bnet_span){v->text[i], v->text_n[i] ? v->text_n[i] : strlen(v->text[i])};
    if (vocab_key(v, w, "tokenizer.ggml.tokens", true))
        bnet_gguf_put_strings(w, "tokenizer.ggml.tokens", spans, v->n);
    if (vocab_key(v, w, "tokenizer.ggml.token_type", v->n_types != SIZE_MAX))
        bnet_gguf_put_array(w, "tokenizer.ggml.token_type", BNET_GGUF_I32, v->type,
                            v->n_types == VOCAB_CAP ? v->n : v->n_types);
    if (vocab_key(v, w, "tokenizer.ggml.scores", v->n_scores != SIZE_MAX))
        bnet_gguf_put_array(w, "tokenizer.ggml.scores", BNET_GGUF_F32, v->score,
                            v->n_scores == VOCAB_CAP ? v->n : v->n_scores);
    for (size_t i = 0; v->n_merges != SIZE_MAX && i < v->n_merges; i++)
        merges[i] =
            (bnet_span){v->merges[i] ? v->merges[i] : "", v->merges[i] ? strlen(v->merges[i]) : 0};
    if (vocab_key(v, w, "tokenizer.ggml.merges", v->n_merges != SIZE_MAX))
        bnet_gguf_put_strings(w, "tokenizer.ggml.merges", merges, v->n_merges);
}

/* NULL with the reason on stderr: the test set-up itself is broken then. */
static inline bnet_gguf *vocab_write(const vocab *v)
{
    char path[64];
    bitnet_error err = {0};
    bnet_gguf *g = NULL;
    bnet_gguf_writer *w = bnet_gguf_writer_new();
    snprintf(path, sizeof path, "/tmp/bitnet-vocab-%ld.gguf", (long)getpid());
    if (!w)
        return NULL;
    vocab_put_string(v, w, "general.architecture", v->arch);
    vocab_put_string(v, w, "tokenizer.ggml.model", v->model);
    vocab_put_string(v, w, "tokenizer.ggml.pre", v->pre);
    vocab_put_string(v, w, "tokenizer.chat_template", v->chat);
    vocab_put_arrays(v, w);
    vocab_put_ids(v, w);
    if (bnet_gguf_begin(w, path, &err) != BITNET_OK || bnet_gguf_finish(w, &err) != BITNET_OK ||
        bnet_gguf_open(path, NULL, &g, &err) != BITNET_OK)
        fprintf(stderr, "vocab_write: %s\n", err.message);
    unlink(path);
    bnet_gguf_writer_free(w);
    return g;
}

#endif
