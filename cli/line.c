/* line.c - lines to answer: edited at a terminal, read as they are from anything else. Hides which
 * of the two it is, and that lines typed are kept between sessions. */
#include "line.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "history.h"
#include "terminal.h"

struct line_reader {
    bool interactive;
    char block[4096]; /* read ahead from a pipe: [at, n) is still to come */
    size_t at, n;
    line_edit *edit; /* NULL: lines are not edited */
    char *kept;      /* file of the lines typed; NULL: none */
    bool kept_named; /* the user named it, so failing to write it is told, once */
    char *last;      /* what was remembered last */
};

/* ---- plain ---- */

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

/* ---- either ---- */

static void tell_entry(void *user, const char *entry)
{
    line_edit_remember(user, entry);
}

line_reader *line_open(const args *a)
{
    line_reader *r = xmalloc(sizeof *r);
    memset(r, 0, sizeof *r);
    r->interactive = isatty(STDIN_FILENO);
    if (!r->interactive || !isatty(STDOUT_FILENO))
        return r;
    r->edit = line_edit_open();
    r->kept = r->edit ? history_path(a) : NULL;
    r->kept_named = opt_given(a, OPT_HISTORY);
    if (r->kept)
        history_read(r->kept, tell_entry, r->edit);
    return r;
}

bool line_interactive(const line_reader *r)
{
    return r->interactive;
}

bool line_edits(const line_reader *r)
{
    return r->edit != NULL;
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
