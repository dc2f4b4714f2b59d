/* models_scan.c - from paths to models: files, folders, names, and which files requests may load.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "jobs/models_impl.h"
#include "jobs/scheduler_impl.h"

static const char suffix[] = ".gguf";

static bool has_suffix(const char *name)
{
    size_t n = strlen(name), k = sizeof suffix - 1;
    return n > k && strcmp(name + n - k, suffix) == 0;
}

char *srv_models_name_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t n = strlen(name);
    return strndup(name, has_suffix(name) ? n - (sizeof suffix - 1) : n);
}

srv_entry *srv_models_find(const srv_models *m, const char *name)
{
    for (size_t i = 0; i < m->n; i++)
        if (!m->entries[i]->gone && strcmp(m->entries[i]->name, name) == 0)
            return m->entries[i];
    return NULL;
}

/* ---- entering ---- */

static bool grow(srv_models *m)
{
    srv_entry **entries = realloc(m->entries, (m->n + 1) * sizeof *entries);
    if (entries)
        m->entries = entries;
    return entries != NULL;
}

/* The place of a model that was forgotten, and which nobody holds; NULL: there is none. */
static srv_entry *forgotten(const srv_models *m)
{
    for (size_t i = 0; i < m->n; i++) {
        srv_entry *e = m->entries[i];
        bool free_of_model = e->state == SRV_UNLOADED || e->state == SRV_BROKEN;
        if (e->gone && free_of_model && e->n_users == 0 && e->n_waiting == 0 && e->n_looks == 0)
            return e;
    }
    return NULL;
}

static srv_entry *new_entry(srv_models *m)
{
    srv_entry *e = grow(m) ? calloc(1, sizeof *e) : NULL;
    if (!e)
        return NULL;
    atomic_init(&e->progress, 0);
    e->gone = true; /* until it has its texts */
    m->entries[m->n++] = e;
    return e;
}

/* False: no memory; the entry stays as it was. */
static bool set_texts(srv_entry *e, const char *path, const char *name)
{
    char *own_path = strdup(path), *own_name = strdup(name);
    if (!own_path || !own_name) {
        free(own_path);
        free(own_name);
        return false;
    }
    free(e->path);
    free(e->name);
    e->path = own_path;
    e->name = own_name;
    return true;
}

bitnet_status srv_models_enter(srv_models *m, const char *path, const char *name, srv_entry **out,
                               bitnet_error *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return srv_error(err, BITNET_IO, "%s: %s", path, strerror(errno));
    srv_entry *e = forgotten(m);
    if (!e && m->n >= SRV_MODELS_MAX)
        return srv_error(err, BITNET_ARGUMENT, "models: more than %d were named", SRV_MODELS_MAX);
    if ((!e && !(e = new_entry(m))) || !set_texts(e, path, name))
        return srv_no_memory(err);
    e->gone = false;
    e->state = SRV_UNLOADED;
    e->created = (int64_t)st.st_mtime;
    e->n_bytes = (uint64_t)st.st_size;
    e->model.name = e->name;
    e->model.created = e->created;
    *out = e;
    return BITNET_OK;
}

/* The name, with a number if another file has it. To be freed. */
static char *free_name(const srv_models *m, const char *path)
{
    char *name = srv_models_name_of(path), *numbered = NULL;
    if (!name || !srv_models_find(m, name))
        return name;
    for (int i = 2; i <= SRV_MODELS_MAX + 2; i++) {
        if (asprintf(&numbered, "%s-%d", name, i) < 0)
            numbered = NULL;
        if (!numbered || !srv_models_find(m, numbered))
            break;
        free(numbered);
        numbered = NULL;
    }
    free(name);
    return numbered;
}

bool srv_models_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* A file that was named before is offered once. */
static bitnet_status give(srv_models *m, const char *path, bitnet_error *err)
{
    srv_entry *e;
    for (size_t i = 0; i < m->n; i++)
        if (!m->entries[i]->gone && srv_models_same_file(m->entries[i]->path, path))
            return BITNET_OK;
    char *name = free_name(m, path);
    bitnet_status st = name ? srv_models_enter(m, path, name, &e, err) : srv_no_memory(err);
    if (st == BITNET_OK)
        e->given = true;
    free(name);
    return st;
}

/* ---- folders ---- */

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static int wanted(const struct dirent *d)
{
    return d->d_name[0] != '.' && has_suffix(d->d_name);
}

static bitnet_status scan_folder(srv_models *m, const char *path, bitnet_error *err)
{
    struct dirent **names = NULL;
    bitnet_status st = BITNET_OK;
    size_t n_files = 0;
    int n = scandir(path, &names, wanted, alphasort);
    if (n < 0)
        return srv_error(err, BITNET_IO, "%s: %s", path, strerror(errno));
    for (int i = 0; i < n; i++) {
        char *file = NULL;
        if (st == BITNET_OK && asprintf(&file, "%s/%s", path, names[i]->d_name) < 0)
            st = srv_no_memory(err);
        else if (st == BITNET_OK && is_file(file)) {
            n_files++;
            st = give(m, file, err);
        }
        free(file);
        free(names[i]);
    }
    free(names);
    if (st == BITNET_OK && n_files == 0)
        st = srv_error(err, BITNET_IO, "%s: no files *.gguf in this folder", path);
    return st;
}

bitnet_status srv_models_scan(srv_models *m, const char *path, bitnet_error *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return srv_error(err, BITNET_IO, "%s: %s", path, strerror(errno));
    return S_ISDIR(st.st_mode) ? scan_folder(m, path, err) : give(m, path, err);
}

/* ---- what requests may load ---- */

static bool inside(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/')
        n--;
    return strncmp(path, folder, n) == 0 && (path[n] == '/' || n == 1);
}

/* Links are followed first, so that one cannot lead out of the folder. */
static char *real_file(const srv_models *m, const char *path)
{
    char *real = realpath(path, NULL);
    for (size_t i = 0; real && i < m->o.n_load_dirs; i++)
        if (m->load_dirs[i] && inside(real, m->load_dirs[i]) && is_file(real))
            return real;
    free(real);
    return NULL;
}

char *srv_models_allowed(const srv_models *m, const char *path)
{
    char *real = path[0] == '/' ? real_file(m, path) : NULL;
    for (size_t i = 0; !real && path[0] != '/' && i < m->o.n_load_dirs; i++) {
        char *joined = NULL;
        if (m->load_dirs[i] && asprintf(&joined, "%s/%s", m->load_dirs[i], path) >= 0)
            real = real_file(m, joined);
        free(joined);
    }
    return real;
}
