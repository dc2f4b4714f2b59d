/* files.c - text in from arguments, files and standard input; files out that appear whole or not at
 * all. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

/* ---- out ---- */

static int write_failure(const char *path, int e)
{
    return fail(EXIT_IO, "%s: cannot write: %s", path, strerror(e));
}

/* A new file beside the target, with the mode of the one it replaces (0: none), else that which a
 * plain open would give it: the mask is asked for here, where no other thread creates files. On
 * failure f->file is NULL and errno says why. */
static void open_temp(outfile *f, mode_t mode)
{
    char *temp = xformat("%s.XXXXXX.tmp", f->path);
    int fd = mkstemps(temp, 4), e = errno;
    if (fd < 0) {
        free(temp);
        errno = e;
        return;
    }
    mode_t mask = umask(0);
    umask(mask);
    fchmod(fd, mode ? mode : 0666 & ~mask);
    f->temp = temp;
    signals_name_temp(temp);
    f->file = fdopen(fd, "wb");
    if (!f->file)
        close(fd);
}

int outfile_open(outfile *f, const char *path)
{
    struct stat st;
    *f = (outfile){.path = xstrdup(path)};
    bool there = stat(path, &st) == 0;
    if (there && !S_ISREG(st.st_mode))
        f->file = fopen(path, "wb");
    else
        open_temp(f, there ? st.st_mode & 0777 : 0);
    if (f->file)
        return EXIT_OK;
    int rc = write_failure(path, errno);
    outfile_abort(f);
    return rc;
}

bool outfile_write(outfile *f, const void *bytes, size_t n)
{
    return fwrite(bytes, 1, n, f->file) == n;
}

int outfile_commit(outfile *f)
{
    int e = 0;
    if (fflush(f->file) != 0 || ferror(f->file))
        e = errno ? errno : EIO;
    if (!e && f->temp && fsync(fileno(f->file)) != 0)
        e = errno;
    if (fclose(f->file) != 0 && !e)
        e = errno;
    f->file = NULL;
    if (!e && f->temp && rename(f->temp, f->path) != 0)
        e = errno;
    if (!e) {
        free(f->temp);
        f->temp = NULL;
    }
    int rc = e ? write_failure(f->path, e) : EXIT_OK;
    outfile_abort(f);
    return rc;
}

void outfile_abort(outfile *f)
{
    if (f->file)
        fclose(f->file);
    if (f->temp)
        unlink(f->temp);
    signals_name_temp(NULL);
    free(f->temp);
    free(f->path);
    *f = (outfile){0};
}

int save_bytes(const char *path, const char *bytes, size_t n)
{
    outfile f;
    int rc = outfile_open(&f, path);
    if (rc)
        return rc;
    outfile_write(&f, bytes, n);
    return outfile_commit(&f);
}

bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* ---- in ---- */

static const size_t input_max = (size_t)1 << 30;

static int read_all(int fd, const char *shown, buffer *out)
{
    char block[65536];
    text_add(out, "", 0);
    for (;;) {
        if (interrupted() || (fd == STDIN_FILENO && !input_wait()))
            return interrupted();
        ssize_t k = read(fd, block, sizeof block);
        if (k == 0)
            return EXIT_OK;
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return fail(EXIT_IO, "%s: cannot read: %s", shown, strerror(errno));
        if (out->n + (size_t)k > input_max)
            return fail(EXIT_USAGE, "%s: more than %zu bytes of text", shown, input_max);
        text_add(out, block, (size_t)k);
    }
}

int read_input(const char *path, buffer *out)
{
    if (strcmp(path, "-") == 0)
        return read_all(STDIN_FILENO, "standard input", out);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && interrupted()) /* a pipe that nobody writes to */
        return interrupted();
    if (fd < 0)
        return fail(EXIT_IO, "%s: cannot open: %s", path, strerror(errno));
    int rc = read_all(fd, path, out);
    close(fd);
    return rc;
}

int read_text(const args *a, option_key literal, option_key file, buffer *out, bool *found,
              bool *from_file)
{
    int n_sources = opt_given(a, literal) + opt_given(a, file) + (a->n_words > 0);
    bool dash = a->n_words == 1 && strcmp(a->words[0], "-") == 0; /* as in many programs */
    bool nothing = n_sources == 0;
    *found = !nothing || !isatty(STDIN_FILENO);
    *from_file = opt_given(a, file) || dash || (nothing && *found);
    text_add(out, "", 0);
    if (n_sources > 1)
        return fail(EXIT_USAGE, "%s: the text is given twice; use one of --%s, --%s or arguments",
                    a->command->name, option_at(literal)->name, option_at(file)->name);
    if (*from_file)
        return read_input(opt_given(a, file) ? opt_text(a, file) : "-", out);
    if (opt_given(a, literal))
        text_puts(out, opt_text(a, literal));
    for (size_t i = 0; i < a->n_words; i++)
        text_printf(out, "%s%s", i ? " " : "", a->words[i]);
    if (opt_on(a, OPT_ESCAPES))
        unescape(out);
    return EXIT_OK;
}

/* The byte that the escape at s (behind the backslash) stands for; *n_used 0 if it is none. */
static char escape_byte(const char *s, size_t *n_used)
{
    static const char from[] = "ntr0\\\"'", to[] = "\n\t\r\0\\\"'";
    const char *p = *s ? strchr(from, *s) : NULL;
    bool hex = *s == 'x' && isxdigit((unsigned char)s[1]) && isxdigit((unsigned char)s[2]);
    *n_used = p ? 1 : hex ? 3 : 0;
    if (!hex)
        return p ? to[p - from] : '\\';
    char digits[] = {s[1], s[2], '\0'};
    return (char)strtoul(digits, NULL, 16);
}

void unescape(buffer *t)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++) {
        size_t n_used = 0;
        char c = t->data[i];
        if (c == '\\')
            c = escape_byte(t->data + i + 1, &n_used);
        t->data[n++] = c;
        i += n_used;
    }
    t->n = n;
    if (t->data)
        t->data[n] = '\0';
}

char *unescaped(const args *a, const char *text)
{
    buffer t = {0};
    text_puts(&t, text);
    if (opt_on(a, OPT_ESCAPES))
        unescape(&t);
    return t.data;
}

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

/* The same file, or the same name in the same folder, however that is written: it need not be
 * there.
 */
static bool one_file(const char *a, const char *b)
{
    struct stat st;
    if (stat(a, &st) == 0 && !S_ISREG(st.st_mode))
        return false;
    char *folder_a = folder_of(a), *folder_b = folder_of(b);
    bool same = strcmp(file_name(a), file_name(b)) == 0 && same_file(folder_a, folder_b);
    free(folder_a);
    free(folder_b);
    return same || same_file(a, b);
}

/* Two outputs in one file would leave one of them. */
static int check_twins(const args *a, size_t i, const value *v)
{
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
    for (size_t i = 0; !rc && i < N_OPTIONS; i++) {
        const value *v = output_at(a, i);
        rc = v ? check_twins(a, i, v) : EXIT_OK;
        rc = rc || !v ? rc : output_try(v->origin, v->text);
    }
    return rc;
}

int check_outputs(const args *a, const char *model)
{
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const value *v = output_at(a, i);
        if (v && same_file(v->text, model))
            return fail(EXIT_USAGE, "%s: %s is the model; choose another output", v->origin,
                        v->text);
    }
    return EXIT_OK;
}
