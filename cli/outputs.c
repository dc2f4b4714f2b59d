/* outputs.c - files to be written, tried before work begins: whoever waited for an hour must not
 * learn then that the folder is missing. Trying asks the system for permission and makes nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

/* The folder that holds `path`, to be freed. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return xstrdup(".");
    return slash == path ? xstrdup("/") : xmemdup(path, (size_t)(slash - path));
}

/* As the user whose rights the program has. */
static bool may(const char *path, int how)
{
    return faccessat(AT_FDCWD, path, how, AT_EACCESS) == 0;
}

/* Files appear by renaming one beside them, so the folder must take new files. */
static int try_folder(const char *origin, const char *path, const char *folder)
{
    struct stat st;
    if (stat(folder, &st) != 0 && errno == ENOENT)
        return fail(EXIT_IO, "%s: %s: cannot write: there is no folder %s", origin, path, folder);
    if (stat(folder, &st) == 0 && !S_ISDIR(st.st_mode))
        return fail(EXIT_IO, "%s: %s: cannot write: %s is not a folder", origin, path, folder);
    if (!may(folder, W_OK | X_OK))
        return fail(EXIT_IO, "%s: %s: cannot write: no new file can be made in the folder %s: %s",
                    origin, path, folder, strerror(errno));
    return EXIT_OK;
}

int output_try(const char *origin, const char *path)
{
    struct stat st;
    bool there = stat(path, &st) == 0;
    if (!there && errno != ENOENT && errno != ENOTDIR && errno != EACCES)
        return fail(EXIT_IO, "%s: %s: cannot write: %s", origin, path, strerror(errno));
    if ((there && S_ISDIR(st.st_mode)) || (path[0] && path[strlen(path) - 1] == '/'))
        return fail(EXIT_IO, "%s: %s: cannot write: it is a directory; name a file in it", origin,
                    path);
    if (there && !may(path, W_OK))
        return fail(EXIT_IO, "%s: %s: cannot write: %s", origin, path, strerror(errno));
    if (there && !S_ISREG(st.st_mode)) /* a device or pipe is written as it is */
        return EXIT_OK;
    char *folder = folder_of(path);
    int rc = try_folder(origin, path, folder);
    free(folder);
    return rc;
}

/* ---- the options that name files to be written ---- */

/* The i-th option's value, where the command writes the file it names; else NULL. A default and
 * the word off name none. */
static const value *output_at(const args *a, size_t i)
{
    const option *o = option_at(i);
    const value *v = &a->values[o->key];
    bool is = o->type == TYPE_OUT && option_on(o, a->command->key) && v->text && v->origin;
    bool word = is && strchr(o->argument, '|') &&
                (!*v->text || strcmp(v->text, "off") == 0 || strcmp(v->text, "on") == 0);
    return is && !word ? v : NULL;
}

/* The same name in the same folder, however that is written; the file need not be there. */
static bool same_place(const char *a, const char *b)
{
    char *folder_a = folder_of(a), *folder_b = folder_of(b);
    bool same = strcmp(file_name(a), file_name(b)) == 0 && same_file(folder_a, folder_b);
    free(folder_a);
    free(folder_b);
    return same;
}

static bool one_file(const char *a, const char *b)
{
    struct stat st;
    if (stat(a, &st) == 0 && !S_ISREG(st.st_mode))
        return false;
    return same_place(a, b) || same_file(a, b);
}

/* Two outputs in one file would leave one of them. */
static int check_twins(const args *a, size_t i)
{
    const value *v = output_at(a, i);
    for (size_t k = 0; k < i; k++) {
        const value *other = output_at(a, k);
        if (other && one_file(v->text, other->text))
            return fail(EXIT_USAGE, "%s and %s both name %s; choose another file for one of them",
                        other->origin, v->origin, v->text);
    }
    return EXIT_OK;
}

int outputs_try(const args *a)
{
    int rc = EXIT_OK;
    for (size_t i = 0; !rc && i < OPT_COUNT; i++) {
        const value *v = output_at(a, i);
        if (v)
            rc = check_twins(a, i);
        if (v && !rc)
            rc = output_try(v->origin, v->text);
    }
    return rc;
}

int check_outputs(const args *a, const char *model)
{
    for (size_t i = 0; i < OPT_COUNT; i++) {
        const value *v = output_at(a, i);
        if (v && same_file(v->text, model))
            return fail(EXIT_USAGE, "%s: %s is the model; choose another output", v->origin,
                        v->text);
    }
    return EXIT_OK;
}
