/* plan.c - the list of output tensors, and the last leg common to every input. */
#include "convert/plan.h"

#include "convert/vocab.h"

static const char *type_name(bnet_type t)
{
    const bnet_type_info *info = bnet_type_find((uint32_t)t);
    return info ? info->name : "unknown";
}

/* What to ask for instead where rows do not divide into blocks. */
static const char *remedy(const bnet_item *item)
{
    if (item->kind == BNET_ITEM_FLOAT && item->n_dims == 2)
        return "use --embedding f16";
    if (item->type != BNET_I2_S && item->n_cols % 128 == 0)
        return "use --type i2_s or --type f16";
    return "use --type f16";
}

bitnet_status bnet_plan_add(bnet_plan *p, const bnet_item *item, const char *source_name,
                            bitnet_error *err)
{
    uint64_t n_bytes;
    const bnet_type_info *info = bnet_type_find((uint32_t)item->type);
    if (!info || !bnet_type_bytes(item->type, item->n_cols, item->n_rows, &n_bytes))
        return bnet_fail(
            err, BITNET_ARGUMENT,
            "%s: tensor %s: rows of %llu values do not divide into %s blocks of %u; %s", item->path,
            source_name, (unsigned long long)item->n_cols, type_name(item->type),
            info ? info->n_elems : 0, remedy(item));
    char *source = bnet_strdup(source_name);
    if (!source || !bnet_grow(&p->items, &p->cap, p->n_items + 1, sizeof *p->items)) {
        bnet_free(source);
        return bnet_no_memory(err, "tensor list");
    }
    p->items[p->n_items] = *item;
    p->items[p->n_items++].source = source;
    return BITNET_OK;
}

void bnet_plan_free(bnet_plan *p)
{
    for (size_t i = 0; i < p->n_items; i++)
        bnet_free(p->items[i].source);
    bnet_free(p->items);
    *p = (bnet_plan){0};
}

void bnet_plan_declare(const bnet_plan *p, bnet_gguf_writer *w)
{
    for (size_t i = 0; i < p->n_items; i++) {
        const bnet_item *t = &p->items[i];
        uint64_t ne[2] = {t->n_cols, t->n_rows};
        bnet_gguf_declare(w, t->name, t->type, ne, t->n_dims);
    }
}

static uint32_t file_type(bnet_type t)
{
    switch (t) {
    case BNET_F16:
        return 1;
    case BNET_TQ1_0:
        return 36;
    case BNET_TQ2_0:
        return 37;
    case BNET_I2_S:
        return 40;
    default:
        return 0; /* F32 */
    }
}

typedef struct keys {
    bnet_gguf_writer *w;
    const char *arch;
} keys;

/* "<arch>.<suffix>" into buf. */
static const char *arch_key(const keys *k, const char *suffix, bnet_str *buf)
{
    buf->n = 0;
    bnet_str_addf(buf, "%s.%s", k->arch, suffix);
    return buf->data ? buf->data : suffix;
}

static void put_u32(const keys *k, const char *suffix, uint32_t v, bnet_str *buf)
{
    bnet_gguf_put_u32(k->w, arch_key(k, suffix, buf), v);
}

static void put_text(const keys *k, const char *key, const char *text)
{
    if (text[0])
        bnet_gguf_put_string(k->w, key, text, strlen(text));
}

static void put_shape(const keys *k, const bnet_shape *s, bnet_str *buf)
{
    put_u32(k, "vocab_size", s->n_vocab, buf);
    put_u32(k, "context_length", s->n_ctx, buf);
    put_u32(k, "embedding_length", s->n_embd, buf);
    put_u32(k, "block_count", s->n_layers, buf);
    put_u32(k, "feed_forward_length", s->n_ff, buf);
    put_u32(k, "rope.dimension_count", s->head_dim, buf);
    put_u32(k, "attention.head_count", s->n_heads, buf);
    put_u32(k, "attention.head_count_kv", s->n_kv_heads, buf);
    if (s->key_length) {
        put_u32(k, "attention.key_length", s->head_dim, buf);
        put_u32(k, "attention.value_length", s->head_dim, buf);
    }
}

/* The keys of published files, in their order, and those that spare readers a guess. */
static bitnet_status put_keys(const bnet_plan *p, const bnet_shape *s, bnet_vocab *v,
                              bnet_gguf_writer *w, bitnet_error *err)
{
    bnet_str buf = {0};
    keys k = {w, s->arch};
    put_text(&k, "general.architecture", s->arch);
    put_text(&k, "general.name", s->name);
    put_text(&k, "general.source.huggingface.repository", s->repository);
    put_shape(&k, s, &buf);
    put_text(&k, arch_key(&k, "hidden_activation", &buf), s->activation);
    bnet_gguf_put_bool(w, "tokenizer.ggml.add_bos_token", v->add_bos == 1);
    bnet_gguf_put_f32(w, arch_key(&k, "attention.layer_norm_rms_epsilon", &buf), s->eps);
    bnet_gguf_put_f32(w, arch_key(&k, "rope.freq_base", &buf), s->rope_base);
    bnet_gguf_put_u32(w, "general.file_type", file_type(p->options->weight_type));
    bitnet_status st = bnet_vocab_put(v, w, err);
    bnet_gguf_put_u32(w, "general.quantization_version", 2);
    if (st == BITNET_OK && buf.failed)
        st = bnet_no_memory(err, "keys");
    bnet_str_free(&buf);
    return st;
}

bitnet_status bnet_plan_write(const bnet_plan *p, const bnet_shape *shape, bnet_vocab *vocab,
                              const char *out, bitnet_error *err)
{
    bnet_gguf_writer *w = bnet_gguf_writer_new();
    bitnet_status st = w ? put_keys(p, shape, vocab, w, err) : bnet_no_memory(err, out);
    bnet_vocab_free(vocab); /* the writer has its own copy */
    if (st == BITNET_OK) {
        bnet_plan_declare(p, w);
        st = bnet_gguf_begin(w, out, err);
    }
    if (st == BITNET_OK)
        st = bnet_plan_emit(p, w, err);
    if (st == BITNET_OK)
        st = bnet_gguf_finish(w, err);
    bnet_gguf_writer_free(w);
    return st;
}
