/* convert.c - the entry: checks the request and tells the kinds of input apart. */
#include "convert/convert.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/str.h"
#include "convert/plan.h"

void bnet_convert_options_init(bnet_convert_options *options)
{
    *options = (bnet_convert_options){.weight_type = BNET_I2_S, .embedding_type = BNET_F16};
}

static bool is_one_of(bnet_type t, const bnet_type *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == t)
            return true;
    return false;
}

static bitnet_status check_types(const bnet_convert_options *o, bitnet_error *err)
{
    static const bnet_type weights[] = {BNET_I2_S, BNET_TQ2_0, BNET_TQ1_0, BNET_F16, BNET_F32};
    static const bnet_type embeddings[] = {BNET_F16, BNET_F32, BNET_BF16, BNET_Q8_0, BNET_Q6_K};
    const bnet_type_info *w = bnet_type_find((uint32_t)o->weight_type),
                         *e = bnet_type_find((uint32_t)o->embedding_type);
    if (!is_one_of(o->weight_type, weights, BNET_COUNT(weights)))
        return bnet_fail(
            err, BITNET_ARGUMENT,
            "cannot write projections as %s; i2_s, tq2_0, tq1_0, f16 and f32 are possible",
            w ? w->name : "an unknown type");
    if (!is_one_of(o->embedding_type, embeddings, BNET_COUNT(embeddings)))
        return bnet_fail(
            err, BITNET_ARGUMENT,
            "cannot write embeddings as %s; f16, f32, bf16, q8_0 and q6_k are possible",
            e ? e->name : "an unknown type");
    return BITNET_OK;
}

/* A GGUF file in a checkpoint's folder is an earlier output, never input. */
static bool is_output(const char *name)
{
    size_t n = strlen(name);
    return n > 5 && strcmp(name + n - 5, ".gguf") == 0;
}

/* Whether `out` is a file of the folder, by whatever name: replacing it would destroy the input. */
static bitnet_status check_inside(const char *folder, const char *out, bitnet_error *err)
{
    char text[128];
    struct dirent *e;
    bnet_str path = {0};
    bool inside = false;
    DIR *d = opendir(folder);
    if (!d)
        return bnet_fail(err, BITNET_IO, "%s: cannot open: %s", folder,
                         bnet_errno_text(errno, text, sizeof text));
    while (!inside && !path.failed && (e = readdir(d)) != NULL) {
        if (is_output(e->d_name))
            continue;
        path.n = 0;
        bnet_str_addf(&path, "%s/%s", folder, e->d_name);
        inside = !path.failed && bnet_same_file(path.data, out);
    }
    closedir(d);
    bool failed = path.failed;
    bnet_str_free(&path);
    if (failed)
        return bnet_no_memory(err, folder);
    return inside ? bnet_fail(err, BITNET_ARGUMENT,
                              "%s: is part of the input; choose another output", out)
                  : BITNET_OK;
}

static bitnet_status check_output(const char *input, bool folder, const char *out,
                                  const bnet_convert_options *o, bitnet_error *err)
{
    struct stat there;
    if (stat(out, &there) != 0)
        return BITNET_OK;
    if (bnet_same_file(input, out))
        return bnet_fail(err, BITNET_ARGUMENT, "%s: is the input; choose another output", out);
    if (o->tokenizer && bnet_same_file(o->tokenizer, out))
        return bnet_fail(err, BITNET_ARGUMENT, "%s: is part of the input; choose another output",
                         out);
    return folder ? check_inside(input, out, err) : BITNET_OK;
}

bitnet_status bnet_convert(const char *input, const char *out, const bnet_convert_options *options,
                           bitnet_error *err)
{
    struct stat st;
    char text[128];
    bnet_convert_options defaults;
    bnet_convert_options_init(&defaults);
    const bnet_convert_options *o = options ? options : &defaults;
    bitnet_status status = check_types(o, err);
    if (status != BITNET_OK)
        return status;
    if (stat(input, &st) != 0)
        return bnet_fail(err, BITNET_IO, "%s: cannot open: %s", input,
                         bnet_errno_text(errno, text, sizeof text));
    status = check_output(input, S_ISDIR(st.st_mode), out, o, err);
    if (status != BITNET_OK)
        return status;
    return S_ISDIR(st.st_mode) ? bnet_convert_hf(input, out, o, err)
                               : bnet_convert_llama2c(input, out, o, err);
}
