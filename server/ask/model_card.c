/* model_card.c - reads the header of a GGUF file for lists of models. */
#include "ask/model_card.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bitnet_tools.h"
#include "ask/json_text.h"

static json_t *value_of(const bitnet_inspect_kv *kv)
{
    if (strncmp(kv->type, "array", 5) == 0)
        return json_null();
    if (strcmp(kv->type, "string") == 0)
        return srv_json_text(kv->value, strlen(kv->value));
    if (strcmp(kv->type, "bool") == 0)
        return json_boolean(strcmp(kv->value, "true") == 0);
    if (kv->type[0] == 'f') {
        double v = strtod(kv->value, NULL);
        return isfinite(v) ? json_real(v) : json_null();
    }
    return json_integer((json_int_t)strtoll(kv->value, NULL, 10));
}

static bool read_metadata(bitnet_inspect *in, srv_card *card)
{
    bitnet_inspect_kv kv;
    card->metadata = json_object();
    for (size_t i = 0; i < bitnet_inspect_n_kv(in); i++)
        if (bitnet_inspect_kv_at(in, i, &kv)) /* a key that is no UTF-8 is left out */
            json_object_set_new(card->metadata, kv.key, value_of(&kv));
    return card->metadata != NULL;
}

/* The type that most bytes of the file have. */
static void read_tensors(bitnet_inspect *in, srv_card *card)
{
    enum { TYPES = 32 };
    const char *types[TYPES];
    uint64_t weights[TYPES] = {0}, best = 0;
    bitnet_inspect_tensor t;
    size_t n = 0, k;
    for (size_t i = 0; bitnet_inspect_tensor_at(in, i, &t); i++) {
        for (k = 0; k < n && strcmp(types[k], t.type) != 0; k++)
            ;
        if (k == TYPES)
            continue;
        n = k == n ? n + 1 : n;
        types[k] = t.type;
        weights[k] += t.n_elems;
        card->n_params += t.n_elems;
        if (weights[k] > best) {
            best = weights[k];
            snprintf(card->type, sizeof card->type, "%s", t.type);
        }
    }
}

static int64_t number_at(const srv_card *card, const char *key)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", card->architecture, key);
    return (int64_t)json_integer_value(json_object_get(card->metadata, name));
}

/* FNV-1a, from four beginnings. */
static void make_digest(const srv_model_row *row, char out[65])
{
    char text[512];
    snprintf(text, sizeof text, "%.400s %llu %lld", row->name, (unsigned long long)row->n_bytes,
             (long long)row->created);
    for (unsigned part = 0; part < 4; part++) {
        uint64_t h = 0xcbf29ce484222325u + part;
        for (const char *p = text; *p; p++)
            h = (h ^ (unsigned char)*p) * 0x100000001b3u;
        snprintf(out + part * 16, 17, "%016llx", (unsigned long long)h);
    }
}

bool srv_card_read(const srv_model_row *row, srv_card *out)
{
    bitnet_inspect *in = NULL;
    *out = (srv_card){0};
    make_digest(row, out->digest);
    if (bitnet_inspect_open(row->path, &in, NULL) != BITNET_OK)
        return false;
    bool ok = read_metadata(in, out);
    read_tensors(in, out);
    bitnet_inspect_close(in);
    if (!ok)
        return false;
    const char *architecture =
        json_string_value(json_object_get(out->metadata, "general.architecture"));
    snprintf(out->architecture, sizeof out->architecture, "%s", architecture ? architecture : "");
    out->template = json_string_value(json_object_get(out->metadata, "tokenizer.chat_template"));
    out->n_ctx = number_at(out, "context_length");
    out->n_embd = number_at(out, "embedding_length");
    return true;
}

void srv_card_free(srv_card *card)
{
    json_decref(card->metadata);
    *card = (srv_card){0};
}

void srv_card_size(const srv_card *card, char out[16])
{
    double n = (double)card->n_params;
    const char *unit = n >= 1e9 ? "B" : n >= 1e6 ? "M" : n >= 1e3 ? "K" : "";
    double v = n >= 1e9 ? n / 1e9 : n >= 1e6 ? n / 1e6 : n >= 1e3 ? n / 1e3 : n;
    snprintf(out, 16, v < 10 && *unit ? "%.1f%s" : "%.0f%s", v, unit);
}
