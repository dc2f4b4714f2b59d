/* cache_folder.c - files are known by how their names end; nothing else in the folder is touched.
 */
#include "base/cache_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

static const struct {
    const char *suffix, *kind;
} kinds[] = {
    {BNET_PACK_SUFFIX, "packed weights"},
    {BNET_SUM_SUFFIX, "checksum"},
    {BNET_CODE_SUFFIX, "kernels"},
};
static const char unfinished[] = "unfinished", temp_suffix[] = ".tmp";

static bool ends_with(const char *s, size_t n, const char *suffix)
{
    size_t k = strlen(suffix);
    return n > k && memcmp(s + n - k, suffix, k) == 0;
}

/* NULL: not ours. A temporary is called like its file with ".XXXXXX.tmp" behind it. */
static const char *kind_of(const char *name)
{
    size_t n = strlen(name), more = sizeof ".XXXXXX.tmp" - 1;
    bool temp = ends_with(name, n, temp_suffix) && n > more && name[n - more] == '.';
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (ends_with(name, temp ? n - more : n, kinds[i].suffix))
            return temp ? unfinished : kinds[i].kind;
    return NULL;
}

bool bnet_cache_folder(const char *folder, const bnet_log *log)
{
    bnet_file_id id;
    bitnet_error why = {0};
    char *copy = bnet_strdup(folder);
    bool made = copy && bnet_make_folder(copy) && bnet_file_identify(folder, &id);
    bnet_free(copy);
    if (!made || !S_ISDIR(id.mode)) {
        bnet_logf(log, BITNET_LOG_INFO, "cache", "%s cannot be made: nothing is kept", folder);
        return false;
    }
    if (bnet_file_own(&id, folder, &why) == BITNET_OK)
        return true;
    bnet_logf(log, BITNET_LOG_WARN, "cache", "nothing is kept: %s", why.message);
    return false;
}

/* ---- listing ---- */

typedef struct listing {
    bnet_cached *files;
    size_t n, cap;
} listing;

static bool add(listing *l, int fd, const char *sub, const char *name)
{
    struct stat st;
    const char *kind = kind_of(name);
    if (!kind || fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
        return true;
    if (!bnet_grow(&l->files, &l->cap, l->n + 1, sizeof *l->files))
        return false;
    bnet_cached *c = &l->files[l->n];
    int k = snprintf(c->name, sizeof c->name, "%s%s", sub, name);
    c->kind = kind;
    c->unfinished = kind == unfinished;
    c->n_bytes = (uint64_t)st.st_size;
    c->used_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    l->n += k > 0 && (size_t)k < sizeof c->name;
    return true;
}

/* Lists one folder, whose descriptor it closes. False: no memory. */
static bool list_folder(listing *l, int fd, const char *sub)
{
    DIR *d = fdopendir(fd);
    bool ok = true;
    if (!d) {
        close(fd);
        return true;
    }
    for (struct dirent *e; ok && (e = readdir(d)) != NULL;)
        ok = add(l, fd, sub, e->d_name);
    closedir(d);
    return ok;
}

static int by_use(const void *a, const void *b)
{
    const bnet_cached *x = a, *y = b;
    return (x->used_ns > y->used_ns) - (x->used_ns < y->used_ns);
}

bitnet_status bnet_cache_list(const char *folder, bnet_cached **out, size_t *n, bitnet_error *err)
{
    listing l = {0};
    char text[128];
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), why = errno;
    *out = NULL;
    *n = 0;
    if (fd < 0 && why == ENOENT)
        return BITNET_OK;
    if (fd < 0)
        return bnet_fail(err, BITNET_IO, "%s: cannot be listed: %s", folder,
                         bnet_errno_text(why, text, sizeof text));
    int sub = openat(fd, BNET_CODE_FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool ok = list_folder(&l, fd, "");
    if (sub >= 0)
        ok = list_folder(&l, sub, BNET_CODE_FOLDER "/") && ok;
    if (!ok) {
        bnet_free(l.files);
        return bnet_no_memory(err, folder);
    }
    if (l.n)
        qsort(l.files, l.n, sizeof *l.files, by_use);
    *out = l.files;
    *n = l.n;
    return BITNET_OK;
}

/* ---- removing ---- */

bool bnet_cache_remove(const char *folder, const bnet_cached *file)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool removed = fd >= 0 && (file->unfinished ? bnet_temp_sweep(fd, file->name)
                                                : unlinkat(fd, file->name, 0) == 0);
    if (fd >= 0)
        close(fd);
    return removed;
}

size_t bnet_cache_sweep(const char *folder, uint64_t *n_bytes)
{
    bnet_cached *files;
    size_t n, n_swept = 0;
    *n_bytes = 0;
    if (bnet_cache_list(folder, &files, &n, NULL) != BITNET_OK)
        return 0;
    for (size_t i = 0; i < n; i++)
        if (files[i].unfinished && bnet_cache_remove(folder, &files[i])) {
            *n_bytes += files[i].n_bytes;
            n_swept++;
        }
    bnet_free(files);
    return n_swept;
}

void bnet_cache_trim(const char *folder, uint64_t max_bytes)
{
    bnet_cached *files;
    size_t n;
    uint64_t total = 0;
    if (bnet_cache_list(folder, &files, &n, NULL) != BITNET_OK)
        return;
    for (size_t i = 0; i < n; i++)
        total += files[i].n_bytes;
    for (size_t i = 0; i < n && total > max_bytes; i++)
        if (bnet_cache_remove(folder, &files[i]))
            total -= files[i].n_bytes;
    bnet_free(files);
}
