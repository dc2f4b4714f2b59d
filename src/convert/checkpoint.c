/* checkpoint.c - a directory's safetensors as one set of tensors: a single file or shards with an
 * index. */
#include <stdio.h>
#include <sys/stat.h>

#include "convert/json.h"
#include "convert/safetensors.h"

#define MAX_INDEX  (64u << 20)
#define MAX_SHARDS 4096u

/* *starved: the answer is not known, there was no memory for the path. */
static bool exists(const char *dir, const char *name, bool *starved)
{
    struct stat st;
    bnet_str path = {0};
    bnet_str_addf(&path, "%s/%s", dir, name);
    bool yes = !path.failed && stat(path.data, &st) == 0;
    *starved = *starved || path.failed;
    bnet_str_free(&path);
    return yes;
}

static bitnet_status add_file(bnet_checkpoint *c, const char *path, bitnet_error *err)
{
    if (!bnet_grow(&c->files, &c->cap_files, c->n_files + 1, sizeof *c->files))
        return bnet_no_memory(err, path);
    bitnet_status st = bnet_st_open(path, &c->files[c->n_files], err);
    if (st == BITNET_OK)
        c->n_files++;
    return st;
}

/* A shard is a plain file name: an index must not lead out of its directory. */
static bitnet_status check_shard_name(const char *name, const char *index, bitnet_error *err)
{
    char quoted[128];
    size_t n = strlen(name);
    if (n > 12 && !strchr(name, '/') && name[0] != '.' &&
        strcmp(name + n - 12, ".safetensors") == 0)
        return BITNET_OK;
    return bnet_fail(err, BITNET_MODEL,
                     "%s: key weight_map: \"%s\" is not the name of a .safetensors file beside it",
                     index, bnet_quote(name, n, quoted, sizeof quoted));
}

/* Opens every file the weight map names, once. `shards` maps its name to its place in c->files. */
static bitnet_status open_shards(bnet_checkpoint *c, const char *dir, const char *index,
                                 json_t *map, bnet_strmap *shards, bitnet_error *err)
{
    const char *name;
    json_t *v;
    json_object_foreach(map, name, v)
    {
        char quoted[128];
        bool existed = false;
        const char *file = json_string_value(v);
        if (!file)
            return bnet_fail(
                err, BITNET_MODEL, "%s: key weight_map: tensor %s: is %s; a file name was expected",
                index, bnet_quote(name, strlen(name), quoted, sizeof quoted), bnet_json_kind(v));
        bitnet_status st = check_shard_name(file, index, err);
        if (st == BITNET_OK &&
            !bnet_strmap_put(shards, file, strlen(file), (uint32_t)c->n_files, &existed))
            st = bnet_no_memory(err, index);
        if (st == BITNET_OK && !existed && c->n_files >= MAX_SHARDS)
            st = bnet_fail(err, BITNET_MODEL, "%s: key weight_map: names more than %u files", index,
                           MAX_SHARDS);
        if (st == BITNET_OK && !existed) {
            bnet_str path = {0};
            bnet_str_addf(&path, "%s/%s", dir, file);
            st = path.failed ? bnet_no_memory(err, index) : add_file(c, path.data, err);
            bnet_str_free(&path);
            if (st == BITNET_IO)
                st = bnet_wrap(err, st, "%s names a shard that cannot be read", index);
        }
        if (st != BITNET_OK)
            return st;
    }
    return BITNET_OK;
}

/* Fails naming a tensor of the weight map that no shard has; every tensor of a shard is in its
 * place already. */
static bitnet_status find_absent(const bnet_checkpoint *c, const char *index, json_t *map,
                                 bitnet_error *err)
{
    char quoted[128];
    const char *name;
    json_t *v;
    bnet_strmap present;
    uint32_t at;
    bool ok = bnet_strmap_init(&present, json_object_size(map));
    for (size_t i = 0; i < c->n_files; i++)
        for (size_t k = 0; ok && k < c->files[i].n_tensors; k++) {
            const char *tensor = c->files[i].tensors[k].name;
            ok = bnet_strmap_put(&present, tensor, strlen(tensor), 0, NULL);
        }
    bitnet_status st = ok ? BITNET_OK : bnet_no_memory(err, index);
    json_object_foreach(map, name, v)
    {
        if (st == BITNET_OK && !bnet_strmap_get(&present, name, strlen(name), &at))
            st = bnet_fail(err, BITNET_MODEL, "%s: tensor %s is not in its shard %s", index,
                           bnet_quote(name, strlen(name), quoted, sizeof quoted),
                           json_string_value(v));
    }
    bnet_strmap_free(&present);
    return st;
}

/* Each tensor of each shard must be where the index says. With equal counts and no name in two
 * files the two then agree in both directions. */
static bitnet_status check_shards(const bnet_checkpoint *c, const char *index, json_t *map,
                                  const bnet_strmap *shards, bitnet_error *err)
{
    char quoted[128];
    size_t n_tensors = 0;
    for (size_t i = 0; i < c->n_files; i++) {
        n_tensors += c->files[i].n_tensors;
        for (size_t k = 0; k < c->files[i].n_tensors; k++) {
            const bnet_st_tensor *t = &c->files[i].tensors[k];
            const char *file = json_string_value(json_object_get(map, t->name));
            uint32_t at = 0;
            bnet_quote(t->name, strlen(t->name), quoted, sizeof quoted);
            if (!file)
                return bnet_fail(err, BITNET_MODEL,
                                 "%s: tensor %s is in %s, but not in the weight_map", index, quoted,
                                 t->path);
            if (!bnet_strmap_get(shards, file, strlen(file), &at) || at != i)
                return bnet_fail(err, BITNET_MODEL,
                                 "%s: tensor %s is in %s, but the weight_map says %s", index,
                                 quoted, t->path, file);
        }
    }
    return n_tensors == json_object_size(map) ? BITNET_OK : find_absent(c, index, map, err);
}

static bitnet_status open_index(bnet_checkpoint *c, const char *dir, const char *index,
                                bitnet_error *err)
{
    bnet_strmap shards = {0};
    bnet_json_at at = {index, "", BITNET_MODEL, err, BITNET_OK};
    json_t *root = bnet_json_file(MAX_INDEX, &at);
    json_t *map = bnet_json_object(root, &at, "weight_map");
    if (!map || json_object_size(map) == 0)
        bnet_json_fail(&at, "weight_map", map ? "is empty" : "is missing");
    if (!bnet_strmap_init(&shards, 16))
        bnet_json_no_memory(&at);
    bitnet_status st = at.status;
    if (st == BITNET_OK)
        st = open_shards(c, dir, index, map, &shards, err);
    if (st == BITNET_OK)
        st = check_shards(c, index, map, &shards, err);
    bnet_strmap_free(&shards);
    json_decref(root);
    return st;
}

/* Fills the table of all tensors by name. */
static bitnet_status index_names(bnet_checkpoint *c, bitnet_error *err)
{
    size_t n = 0, at = 0;
    for (size_t i = 0; i < c->n_files; i++)
        n += c->files[i].n_tensors;
    c->tensors = bnet_calloc(n, sizeof *c->tensors);
    c->used = bnet_calloc(n, sizeof *c->used);
    if (!c->tensors || !c->used || !bnet_strmap_init(&c->by_name, n))
        return bnet_no_memory(err, "tensor names");
    for (size_t i = 0; i < c->n_files; i++) {
        for (size_t k = 0; k < c->files[i].n_tensors; k++, at++) {
            bnet_st_tensor *t = &c->files[i].tensors[k];
            if (!bnet_strmap_put(&c->by_name, t->name, strlen(t->name), (uint32_t)at, NULL))
                return bnet_no_memory(err, "tensor names");
            c->tensors[at] = t;
        }
    }
    c->n_tensors = n;
    return BITNET_OK;
}

static bitnet_status no_weights(const char *dir, bitnet_error *err)
{
    bool starved = false;
    if (exists(dir, "pytorch_model.bin", &starved) ||
        exists(dir, "pytorch_model.bin.index.json", &starved))
        return bnet_fail(
            err, BITNET_IO,
            "%s: only pytorch_model.bin, a pickle, which can run code and is never "
            "read; save the model as safetensors (save_pretrained with safe_serialization)",
            dir);
    if (starved)
        return bnet_no_memory(err, dir);
    return bnet_fail(err, BITNET_IO,
                     "%s: neither model.safetensors nor model.safetensors.index.json in it", dir);
}

static bitnet_status open_files(bnet_checkpoint *c, const char *dir, bitnet_error *err)
{
    bitnet_status st;
    bnet_str path = {0};
    bool starved = false, single = exists(dir, "model.safetensors", &starved);
    bool index = !single && exists(dir, "model.safetensors.index.json", &starved);
    if (starved)
        return bnet_no_memory(err, dir);
    if (!single && !index)
        return no_weights(dir, err);
    bnet_str_addf(&path, "%s/model.safetensors%s", dir, single ? "" : ".index.json");
    if (path.failed)
        st = bnet_no_memory(err, dir);
    else
        st = single ? add_file(c, path.data, err) : open_index(c, dir, path.data, err);
    bnet_str_free(&path);
    return st;
}

bitnet_status bnet_checkpoint_open(const char *dir, bnet_checkpoint *out, bitnet_error *err)
{
    bnet_checkpoint c = {0};
    bitnet_status st = open_files(&c, dir, err);
    if (st == BITNET_OK)
        st = index_names(&c, err);
    if (st != BITNET_OK)
        bnet_checkpoint_close(&c);
    *out = c;
    return st;
}

void bnet_checkpoint_close(bnet_checkpoint *c)
{
    bnet_strmap_free(&c->by_name);
    bnet_free(c->tensors);
    bnet_free(c->used);
    for (size_t i = 0; i < c->n_files; i++)
        bnet_st_close(&c->files[i]);
    bnet_free(c->files);
    *c = (bnet_checkpoint){0};
}

const bnet_st_tensor *bnet_checkpoint_find(bnet_checkpoint *c, const char *name)
{
    uint32_t i;
    if (!bnet_strmap_get(&c->by_name, name, strlen(name), &i))
        return NULL;
    c->used[i] = true;
    return c->tensors[i];
}

const char *bnet_checkpoint_path(const bnet_checkpoint *c)
{
    return c->files[0].path;
}
