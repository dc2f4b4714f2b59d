/* cmd_cache.c - `bitnet cache`: what is kept between runs, where, how much of it, and away with it.
 */
#include <time.h>

#include "cli.h"

typedef struct listing {
    const args *args;
    json_t *files;
    size_t n;
    uint64_t n_bytes;
} listing;

static void count(void *user, const bitnet_cache_file *f)
{
    listing *l = user;
    l->n++;
    l->n_bytes += f->n_bytes;
}

static void show(void *user, const bitnet_cache_file *f)
{
    listing *l = user;
    char when[32] = "";
    struct tm t;
    time_t used = (time_t)f->used;
    count(l, f);
    if (opt_json(l->args)) {
        json_array_append_new(l->files, j_object("name:t kind:t model:t bytes:n used:n", f->name,
                                                 f->kind, f->source[0] ? f->source : NULL,
                                                 f->n_bytes, (uint64_t)f->used));
        return;
    }
    if (localtime_r(&used, &t))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M", &t);
    char *name = visible(f->name), *source = visible(f->source);
    out_printf("%10.1f MB  %-16s  %-14s  %-24s  %s\n", (double)f->n_bytes / 1e6, when, f->kind,
               name, source);
    free(name);
    free(source);
}

static int list(const args *a, const char *folder)
{
    listing l = {.args = a, .files = json_array()};
    bitnet_error err = {0};
    int rc = folder ? outcome(bitnet_cache_list(folder, show, &l, &err), &err) : EXIT_OK;
    if (!rc && opt_json(a)) {
        j_print(j_object("folder:t files:j count:n bytes:n", folder, l.files, (uint64_t)l.n,
                         l.n_bytes));
        return rc;
    }
    json_decref(l.files);
    if (!rc && folder)
        out_printf("%zu file%s, %.1f MB, in %s\n", l.n, plural(l.n), (double)l.n_bytes / 1e6,
                   folder);
    else if (!rc)
        out_printf("nothing is kept: --cache is off\n");
    return rc;
}

static int clear(const args *a, const char *folder)
{
    listing l = {.args = a};
    bitnet_error err = {0};
    int rc = folder ? outcome(bitnet_cache_clear(folder, count, &l, &err), &err) : EXIT_OK;
    if (!rc && opt_json(a))
        j_print(j_object("folder:t removed:n bytes:n", folder, (uint64_t)l.n, l.n_bytes));
    else if (!rc && folder)
        out_printf("removed %zu file%s, %.1f MB, from %s\n", l.n, plural(l.n),
                   (double)l.n_bytes / 1e6, folder);
    else if (!rc)
        out_printf("nothing is kept: --cache is off\n");
    return rc;
}

static int path(const args *a, const char *folder)
{
    if (opt_json(a))
        j_print(j_object("folder:t", folder));
    else if (folder)
        out_printf("%s\n", folder);
    else
        return fail(EXIT_OTHER, "cache path: nothing is kept: --cache is off, or neither "
                                "XDG_CACHE_HOME nor HOME is set");
    return EXIT_OK;
}

int cmd_cache(args *a)
{
    char buf[4096];
    const char *folder = cache_folder(opt_text(a, OPT_CACHE_FOLDER), buf, sizeof buf);
    const char *what = a->n_words ? a->words[0] : "list";
    if (strcmp(what, "list") == 0)
        return list(a, folder);
    if (strcmp(what, "clear") == 0)
        return clear(a, folder);
    if (strcmp(what, "path") == 0)
        return path(a, folder);
    return fail(EXIT_USAGE, "cache: '%s' is not one of list, clear, path", what);
}

/* ---- the first write ---- */

static void find_pack(void *user, const bitnet_cache_file *f)
{
    listing *l = user;
    if (strcmp(f->kind, "packed weights") == 0)
        count(l, f);
}

static listing packs_in(const char *folder)
{
    listing l = {0};
    if (folder)
        (void)!bitnet_cache_list(folder, find_pack, &l, NULL);
    return l;
}

bool cache_is_empty(const char *folder)
{
    return packs_in(folder).n == 0;
}

void cache_tell_first(const args *a, const char *folder)
{
    listing l = packs_in(folder);
    if (l.n)
        note(a,
             "[the packed weights are kept in %s (%.0f MB), so that the next load is quick; "
             "bitnet cache clear removes them, --cache off keeps nothing]\n",
             folder, (double)l.n_bytes / 1e6);
}
