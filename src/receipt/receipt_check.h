/* receipt_check.h - one receipt under examination: what the files that hold the gates share. */
#ifndef BNET_RECEIPT_CHECK_H
#define BNET_RECEIPT_CHECK_H

#include <stdio.h>

#include "engine/engine.h"
#include "bitnet_check.h"
#include "format/json_file.h"

/* 2^53: beyond it not every whole number is a double. */
#define BNET_RECEIPT_WHOLE ((json_int_t)1 << 53)

/* The largest file that is read as a receipt. */
enum { BNET_RECEIPT_BYTES = 16 << 20 };

typedef struct checking {
    const json_t *root;
    const bitnet_verify_options *o;
    char why[400];
    bitnet_status broken; /* not a verdict: a file could not be read */
    bitnet_error *err;
} checking;

static inline bool no(checking *c, const char *fmt, ...) BITNET_PRINTF(2, 3);
static inline bool no(checking *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->why, sizeof c->why, fmt, ap);
    va_end(ap);
    return false;
}

/* Reads the file once and puts it before every gate. Accepted: *out, to be freed. Fails as
 * bitnet_receipt_verify; *gate is then the one that refused it (receipt_verify.c). */
bitnet_status bnet_receipt_read(const char *path, const bitnet_verify_options *o, json_t **out,
                                int *gate, bitnet_error *err);

/* ---- reading ---- */

/* "model_info.sha256"; NULL if it is not there. */
static inline const json_t *at(const json_t *root, const char *path)
{
    char key[64];
    for (const json_t *j = root; j;) {
        size_t n = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        j = json_object_get(j, key);
        if (!path[n])
            return j;
        path += n + 1;
    }
    return NULL;
}

static inline const char *text_at(const checking *c, const char *path)
{
    const char *s = json_string_value(at(c->root, path));
    return s ? s : "";
}

static inline double number_at(const checking *c, const char *path)
{
    return json_number_value(at(c->root, path));
}

static inline size_t n_ids(const checking *c)
{
    return json_array_size(at(c->root, "kernels"));
}

static inline const char *id_at(const checking *c, size_t i)
{
    const char *s = json_string_value(json_array_get(at(c->root, "kernels"), i));
    return s ? s : "";
}

/* The value of "NAME=VALUE" in request.flags; NULL: not recorded. */
static inline const char *bnet_receipt_flag(const checking *c, const char *name)
{
    const json_t *flags = at(c->root, "request.flags");
    size_t n = strlen(name);
    for (size_t i = 0; i < json_array_size(flags); i++) {
        const char *s = json_string_value(json_array_get(flags, i));
        if (s && strncmp(s, name, n) == 0 && s[n] == '=')
            return s + n + 1;
    }
    return NULL;
}

/* For messages: cut, without control characters. */
static inline const char *shown(const char *s, char buf[64])
{
    return bnet_quote(s, strlen(s), buf, 64);
}

/* The record of an id in this library, or in the registry of the caller's runtime; NULL: none. */
static inline const bnet_kernel_record *find_kernel(const checking *c, const char *id)
{
    const bnet_kernel_record *k = bnet_kernel_row_find(id);
    return k || !c->o->runtime ? k : bnet_registry_find(c->o->runtime->registry, id);
}

/* Is this one of the operations the kernel does? */
static inline bool does_op(const bnet_kernel_record *k, bnet_op op)
{
    return ((bnet_op_parts(k->op) | k->fused) >> op & 1) != 0;
}

static inline bool ternary_type(const char *type)
{
    static const char *const types[] = {"I2_S", "TQ1_0", "TQ2_0"};
    for (size_t i = 0; i < BNET_COUNT(types); i++)
        if (strcmp(type, types[i]) == 0)
            return true;
    return false;
}

/* Each says no() with its reason, or returns true. */

/* receipt_form.c: fields of the types in receipt_fields.inc, no key that is not of the schema,
 * sizes that are not 0, numbers up to 2^53. */
bool bnet_form_types(checking *c);
bool bnet_form_hex(const json_t *j); /* a text of 64 hexadecimal digits */
bool bnet_form_keys(checking *c);
bool bnet_form_sizes(checking *c);
/* The startup summary, wholly: "requested=X detected=[a,b] selected=Y". */
bool bnet_form_summary(checking *c);
/* YYYY-MM-DDThh:mm:ss[.fraction](Z|+hh:mm|-hh:mm); *out: seconds since 1970. */
bool bnet_form_time(const char *s, double *out);

/* receipt_evidence.c: instruction sets fit the machine and what was allowed. */
bool bnet_evidence_isa(checking *c);
/* The cache was read as it was written. */
bool bnet_evidence_cache(checking *c);
/* Weights of the model, formats named and linear kernels agree. */
bool bnet_evidence_formats(checking *c);
/* GPU_INFO, GPU_DEVICE, the startup summary and the kernels of a GPU fit each other. */
bool bnet_evidence_gpu(checking *c);
/* What the receipt says of the model is what the file at o->model_path says. */
bool bnet_evidence_model(checking *c);

/* receipt_counts.c: every layer was passed as often as every other. */
bool bnet_evidence_layers(checking *c);
/* Passes that a GPU repeated have their kernels among the calls; a CPU repeats none. */
bool bnet_evidence_replays(checking *c);
/* On the CPU: the calls of every operation are those of the passes; in a receipt of `bitnet run`
 * the passes are those of prompt, tokens, batches and repeats. */
bool bnet_counts_of_passes(checking *c);

/* receipt_sign.c: a signature that is there is right, and of the key that is asked for. */
bool bnet_sign_check(checking *c);
/* On failure: ARGUMENT, the text is no public key. */
bitnet_status bnet_sign_check_key(const char *public_key, bitnet_error *err);

#endif
