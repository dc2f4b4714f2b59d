/* line.c - lines to answer: edited at a terminal, read as they are from anything else. Hides which
 * of the two it is, and that lines typed are kept between sessions: in a file with one entry per
 * line, the newest last; a newline in an entry is written \n, a backslash \\. Entries are appended
 * as they are made, so that sessions side by side and a session that dies lose nothing; a file that
 * has grown long is cut to its newest entries when it is read. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "chat.h"
#include "terminal.h"

/* ---- lines typed, kept between sessions ---- */

enum {
    ENTRIES = 1000,       /* told at most, and kept where the file is cut */
    ENTRY_BYTES = 16384,  /* longer ones are not kept */
    FILE_BYTES = 1 << 20, /* beyond this, or beyond twice ENTRIES, it is cut */
    READ_BYTES = 8 << 20  /* what of a larger file is looked at: its end */
};

/* Makes the folders above the file, for the user alone. */
static void make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700); /* what fails here fails when the file is opened */
        *slash = '/';
    }
}

/* The file that --history means, to be freed; NULL: none. Makes its folder if it is the default
 * one. */
static char *history_path(const args *a)
{
    const char *want = opt_text(a, OPT_HISTORY);
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char *path = NULL;
    if (!*want || strcmp(want, "off") == 0)
        return NULL;
    if (strcmp(want, "on") != 0)
        return xstrdup(want);
    if (state && state[0] == '/')
        path = xformat("%s/bitnet/history", state);
    else if (home && home[0] == '/')
        path = xformat("%s/.local/state/bitnet/history", home);
    if (path)
        make_folders(path);
    return path;
}

static void escape(const char *entry, buffer *out)
{
    static const char *const escapes[] = {"\\n", "\\\\"};
    text_mapped(out, entry, "\n\\", escapes);
    text_puts(out, "\n");
}

/* The entry of a line; false: it is not one of ours. */
static bool understand(const char *line, size_t n, buffer *out)
{
    out->n = 0;
    text_add(out, "", 0);
    for (size_t i = 0; i < n;) {
        size_t len = utf8_length((const unsigned char *)line + i, n - i);
        bool pair = line[i] == '\\' && i + 1 < n;
        if (len == 0 || line[i] == '\0')
            return false;
        if (pair)
            text_puts(out, line[i + 1] == 'n' ? "\n" : "\\");
        else
            text_add(out, line + i, len);
        i += pair ? 2 : len;
    }
    return out->n > 0;
}

/* A pipe or a device in its place is not waited for. */
static bool read_whole(const char *path, buffer *out)
{
    struct stat st;
    char block[65536];
    ssize_t k = 0;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    if (ok && st.st_size > READ_BYTES)
        ok = lseek(fd, -(off_t)READ_BYTES, SEEK_END) >= 0;
    while (ok && (k = read(fd, block, sizeof block)) > 0)
        text_add(out, block, (size_t)k);
    close(fd);
    return ok && k == 0 && out->n > 0;
}

/* Where the newest ENTRIES lines, of FILE_BYTES at most, begin; *n_lines: how many there are in
 * all. */
static size_t newest(const buffer *text, size_t *n_lines)
{
    size_t at = text->n;
    *n_lines = 0;
    for (size_t i = text->n; i-- > 0;) {
        if (i > 0 && text->data[i - 1] != '\n')
            continue;
        if (++*n_lines <= ENTRIES && text->n - i <= FILE_BYTES)
            at = i;
    }
    return at;
}

/* A new file takes the old one's place, or nothing happens. A link to it stays one. */
static void cut(const char *path, const char *bytes, size_t n)
{
    char *real = realpath(path, NULL);
    char *temp = xformat("%s.XXXXXX", real ? real : "");
    int fd = real ? mkstemp(temp) : -1;
    bool ok = fd >= 0 && write(fd, bytes, n) == (ssize_t)n;
    if (fd >= 0 && close(fd) != 0)
        ok = false;
    if (fd >= 0 && (!ok || rename(temp, real) != 0))
        unlink(temp);
    free(temp);
    free(real);
}

/* Remembers the entries, oldest first. A file that is not there, not readable or not ours gives
 * none. */
static void history_read(const char *path, line_edit *e)
{
    buffer text = {0}, entry = {0};
    size_t n_lines = 0;
    if (read_whole(path, &text)) {
        size_t at = newest(&text, &n_lines);
        /* zero bytes, or a line longer than all that is kept: the file is something else */
        bool ours = at < text.n && !memchr(text.data, '\0', text.n);
        if ((n_lines > 2 * ENTRIES || text.n > FILE_BYTES) && ours)
            cut(path, text.data + at, text.n - at);
        while (at < text.n) {
            const char *line = text.data + at, *end = memchr(line, '\n', text.n - at);
            size_t n = end ? (size_t)(end - line) : text.n - at;
            if (understand(line, n, &entry))
                line_edit_remember(e, entry.data);
            at += n + 1;
        }
    }
    free_buffer(&text);
    free_buffer(&entry);
}

/* Appends an entry; false: it could not be written. */
static bool history_append(const char *path, const char *entry)
{
    struct stat st;
    buffer line = {0};
    if (strlen(entry) > ENTRY_BYTES)
        return true;
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    escape(entry, &line);
    if (ok)
        ok = write(fd, line.data, line.n) == (ssize_t)line.n;
    if (fd >= 0)
        close(fd);
    free_buffer(&line);
    return ok;
}

/* ---- reading ---- */

struct line_reader {
    bool interactive;
    char block[4096]; /* read ahead from a pipe: [at, n) is still to come */
    size_t at, n;
    line_edit *edit; /* NULL: lines are not edited */
    char *kept;      /* file of the lines typed; NULL: none */
    bool kept_named; /* the user named it, so failing to write it is told, once */
    char *last;      /* what was remembered last */
};

static line_result fill(line_reader *r)
{
    for (;;) {
        if (!input_wait())
            return LINE_INTERRUPTED;
        ssize_t k = read(STDIN_FILENO, r->block, sizeof r->block);
        if (k > 0) {
            r->at = 0;
            r->n = (size_t)k;
            return LINE_OK;
        }
        if (k == 0)
            return LINE_END;
        if (errno != EINTR)
            return LINE_FAILED;
    }
}

static line_result read_plain(line_reader *r, buffer *out)
{
    for (;;) {
        line_result result = r->at < r->n ? LINE_OK : fill(r);
        if (result == LINE_END && out->n)
            return LINE_OK;
        if (result != LINE_OK)
            return result;
        const char *start = r->block + r->at, *nl = memchr(start, '\n', r->n - r->at);
        size_t k = nl ? (size_t)(nl - start) : r->n - r->at;
        text_add(out, start, k);
        r->at += k + (nl != NULL);
        if (out->n > MESSAGE_BYTES_MAX)
            return LINE_TOO_LONG;
        if (nl)
            return LINE_OK;
    }
}

line_reader *line_open(const args *a, bool *edits)
{
    line_reader *r = xmalloc(sizeof *r);
    memset(r, 0, sizeof *r);
    r->interactive = isatty(STDIN_FILENO);
    r->edit = r->interactive && isatty(STDOUT_FILENO) ? line_edit_open() : NULL;
    *edits = r->edit != NULL;
    r->kept = r->edit ? history_path(a) : NULL;
    r->kept_named = opt_given(a, OPT_HISTORY);
    if (r->kept)
        history_read(r->kept, r->edit);
    return r;
}

line_result line_read(line_reader *r, const char *prompt, const char *given, buffer *out)
{
    text_add(out, "", 0);
    if (r->edit)
        return line_edit_read(r->edit, prompt, given, out);
    if (r->interactive)
        out_puts(prompt);
    return read_plain(r, out);
}

void line_remember(line_reader *r, const char *entry)
{
    if (!r->edit || !*entry || (r->last && strcmp(r->last, entry) == 0))
        return;
    free(r->last);
    r->last = xstrdup(entry);
    line_edit_remember(r->edit, entry);
    if (!r->kept || history_append(r->kept, entry))
        return;
    if (r->kept_named)
        warn("%s: lines typed are not kept: %s", r->kept, strerror(errno));
    free(r->kept);
    r->kept = NULL;
}

void line_close(line_reader *r)
{
    if (!r)
        return;
    line_edit_close(r->edit);
    free(r->kept);
    free(r->last);
    free(r);
}
