/* history.c - one entry per line, the newest last; a newline in an entry is written \n, a backslash
 * \\. Entries are appended as they are made, so that sessions side by side and a session that dies
 * lose nothing; a file that has grown long is cut to its newest entries when it is read. */
#include "history.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    ENTRIES = 1000,       /* told at most, and kept where the file is cut */
    ENTRY_BYTES = 16384,  /* longer ones are not kept */
    FILE_BYTES = 1 << 20, /* beyond this, or beyond twice ENTRIES, it is cut */
    READ_BYTES = 8 << 20  /* what of a larger file is looked at: its end */
};

/* ---- where ---- */

/* Makes the folders above the file, for the user alone. */
static void make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700); /* what fails here fails when the file is opened */
        *slash = '/';
    }
}

char *history_path(const args *a)
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

/* ---- the form ---- */

static void escape(const char *entry, buffer *out)
{
    for (; *entry; entry++) {
        if (*entry == '\n')
            text_puts(out, "\\n");
        else if (*entry == '\\')
            text_puts(out, "\\\\");
        else
            text_add(out, entry, 1);
    }
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

/* ---- reading ---- */

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

/* Zero bytes, or a line longer than all that is kept, tell that the file is something else. */
static bool is_ours(const buffer *text, size_t at)
{
    return at < text->n && !memchr(text->data, '\0', text->n);
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

void history_read(const char *path, void (*each)(void *user, const char *entry), void *user)
{
    buffer text = {0}, entry = {0};
    size_t n_lines = 0;
    if (read_whole(path, &text)) {
        size_t at = newest(&text, &n_lines);
        if ((n_lines > 2 * ENTRIES || text.n > FILE_BYTES) && is_ours(&text, at))
            cut(path, text.data + at, text.n - at);
        while (at < text.n) {
            const char *line = text.data + at, *end = memchr(line, '\n', text.n - at);
            size_t n = end ? (size_t)(end - line) : text.n - at;
            if (understand(line, n, &entry))
                each(user, entry.data);
            at += n + 1;
        }
    }
    free_buffer(&text);
    free_buffer(&entry);
}

/* ---- writing ---- */

bool history_append(const char *path, const char *entry)
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
