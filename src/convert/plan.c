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

/* "<arch>.<suffix>" into buf. */
static const char *arch_key(const bnet_shape *s, const char *suffix, bnet_str *buf)
{
    buf->n = 0;
    bnet_str_addf(buf, "%s.%s", s->arch, suffix);
    return buf->data ? buf->data : suffix;
}

static void put_text(bnet_gguf_writer *w, const char *key, const char *text)
{
    if (text[0])
        bnet_gguf_put_string(w, key, text, strlen(text));
}

static void put_shape(bnet_gguf_writer *w, const bnet_shape *s, bnet_str *buf)
{
    const uint32_t key_length = s->key_length ? s->head_dim : 0;
    const struct {
        const char *suffix;
        uint32_t value; /* 0: not put */
    } rows[] = {{"vocab_size", s->n_vocab},           {"context_length", s->n_ctx},
                {"embedding_length", s->n_embd},      {"block_count", s->n_layers},
                {"feed_forward_length", s->n_ff},     {"rope.dimension_count", s->head_dim},
                {"attention.head_count", s->n_heads}, {"attention.head_count_kv", s->n_kv_heads},
                {"attention.key_length", key_length}, {"attention.value_length", key_length}};
    for (size_t i = 0; i < BNET_COUNT(rows); i++)
        if (rows[i].value)
            bnet_gguf_put_u32(w, arch_key(s, rows[i].suffix, buf), rows[i].value);
}

/* The keys of published files, in their order, and some that readers would otherwise guess. */
static bitnet_status put_keys(const bnet_plan *p, const bnet_shape *s, bnet_vocab *v,
                              bnet_gguf_writer *w, bitnet_error *err)
{
    bnet_str buf = {0};
    put_text(w, "general.architecture", s->arch);
    put_text(w, "general.name", s->name);
    put_text(w, "general.source.huggingface.repository", s->repository);
    put_shape(w, s, &buf);
    put_text(w, arch_key(s, "hidden_activation", &buf), s->activation);
    bnet_gguf_put_bool(w, "tokenizer.ggml.add_bos_token", v->add_bos == 1);
    bnet_gguf_put_f32(w, arch_key(s, "attention.layer_norm_rms_epsilon", &buf), s->eps);
    bnet_gguf_put_f32(w, arch_key(s, "rope.freq_base", &buf), s->rope_base);
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
    for (size_t i = 0; st == BITNET_OK && i < p->n_items; i++) {
        const bnet_item *t = &p->items[i];
        bnet_gguf_declare(w, t->name, t->type, (uint64_t[2]){t->n_cols, t->n_rows}, t->n_dims);
    }
    if (st == BITNET_OK)
        st = bnet_gguf_begin(w, out, err);
    if (st == BITNET_OK && p->options->on_temp)
        p->options->on_temp(p->options->progress_user, bnet_gguf_temp_path(w));
    if (st == BITNET_OK)
        st = bnet_plan_emit(p, w, err);
    if (st == BITNET_OK)
        st = bnet_gguf_finish(w, err);
    bnet_gguf_writer_free(w);
    return st;
}
