/* cache.c - what a cache folder holds, for people who wonder where their disk went. */
#include "base/cache_folder.h"
#include "base/cachefile.h"
#include "base/str.h"
#include "bitnet.h"

/* The model that a file was made of, to be freed; NULL: not known. */
static char *source_of(const char *folder, const bnet_cached *f)
{
    bnet_str path = {0}, source = {0};
    uint64_t n = 0;
    bnet_str_addf(&path, "%s/%s", folder, f->name);
    bnet_cachefile *c = path.failed ? NULL : bnet_cachefile_open(path.data, NULL, NULL);
    const void *text = c ? bnet_cachefile_piece(c, BNET_CACHE_SOURCE, &n) : NULL;
    if (text)
        bnet_str_add(&source, text, (size_t)n);
    bnet_cachefile_close(c);
    bnet_str_free(&path);
    return source.data;
}

static void tell(const bnet_cached *f, const char *source, bitnet_cache_fn each, void *user)
{
    const bitnet_cache_file file = {.name = f->name,
                                    .kind = f->kind,
                                    .source = source ? source : "",
                                    .n_bytes = f->n_bytes,
                                    .used = f->used_ns / 1000000000};
    each(user, &file);
}

bitnet_status bitnet_cache_list(const char *cache_dir, bitnet_cache_fn each, void *user,
                                bitnet_error *err)
{
    bnet_cached *files;
    size_t n;
    if (!cache_dir || !each)
        return bnet_fail(err, BITNET_ARGUMENT, "cache: folder and function must not be NULL");
    bitnet_status st = bnet_cache_list(cache_dir, &files, &n, err);
    for (size_t i = 0; st == BITNET_OK && i < n; i++) {
        char *source = source_of(cache_dir, &files[i]);
        tell(&files[i], source, each, user);
        bnet_free(source);
    }
    bnet_free(files);
    return st;
}

bitnet_status bitnet_cache_clear(const char *cache_dir, bitnet_cache_fn each, void *user,
                                 bitnet_error *err)
{
    bnet_cached *files;
    size_t n;
    if (!cache_dir)
        return bnet_fail(err, BITNET_ARGUMENT, "cache: the folder must not be NULL");
    bitnet_status st = bnet_cache_list(cache_dir, &files, &n, err), all = BITNET_OK;
    for (size_t i = 0; st == BITNET_OK && i < n; i++) {
        bool gone = bnet_cache_remove(cache_dir, &files[i]);
        if (gone && each)
            tell(&files[i], NULL, each, user);
        if (!gone && !files[i].unfinished)
            all = bnet_fail(err, BITNET_IO, "%s/%s: cannot be removed; is the folder yours?",
                            cache_dir, files[i].name);
    }
    bnet_free(files);
    return st == BITNET_OK ? all : st;
}
