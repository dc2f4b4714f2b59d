/* line.c - lines to answer: edited with libedit at a terminal, read as they are from anything else.
 * Hides that Ctrl-C must end the reading of a line without ending the program. */
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "chat.h"

#ifdef BITNET_HAVE_LIBEDIT
#include <histedit.h>
#endif

struct line_reader {
    bool interactive;
    const char *prompt;
    char block[4096]; /* read ahead from a pipe: [at, n) is still to come */
    size_t at, n;
#ifdef BITNET_HAVE_LIBEDIT
    EditLine *edit;
    History *history;
    char *history_path;
#endif
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
        if (nl)
            return LINE_OK;
    }
}

/* ---- libedit ---- */

#ifdef BITNET_HAVE_LIBEDIT

static char *edit_prompt(EditLine *e)
{
    line_reader *r = NULL;
    el_get(e, EL_CLIENTDATA, &r);
    return (char *)(uintptr_t)r->prompt;
}

/* One character; unlike libedit's own reader it gives up at once when Ctrl-C was pressed. */
static int edit_char(EditLine *e, wchar_t *out)
{
    mbstate_t state;
    memset(&state, 0, sizeof state);
    (void)e;
    for (;;) {
        char c;
        if (!input_wait())
            return -1;
        ssize_t k = read(STDIN_FILENO, &c, 1);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return (int)k;
        size_t n = mbrtowc(out, &c, 1, &state);
        if (n == (size_t)-2)
            continue;
        if (n == (size_t)-1)
            *out = L'?';
        return 1;
    }
}

/* UTF-8 is typed whatever the locale says. */
static void want_utf8(void)
{
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
}

static void edit_open(line_reader *r, const char *history_path)
{
    HistEvent event;
    want_utf8();
    r->edit = el_init("bitnet", stdin, stdout, stderr);
    r->history = history_init();
    if (!r->edit || !r->history)
        return;
    history(r->history, &event, H_SETSIZE, 1000);
    history(r->history, &event, H_SETUNIQUE, 1);
    if (history_path) {
        r->history_path = xstrdup(history_path);
        history(r->history, &event, H_LOAD, history_path);
    }
    el_set(r->edit, EL_CLIENTDATA, r);
    el_set(r->edit, EL_PROMPT, edit_prompt);
    el_set(r->edit, EL_EDITOR, "emacs");
    el_set(r->edit, EL_HIST, history, r->history);
    el_set(r->edit, EL_GETCFN, edit_char);
    el_source(r->edit, NULL);
}

static void edit_close(line_reader *r)
{
    HistEvent event;
    if (r->history && r->history_path && history(r->history, &event, H_SAVE, r->history_path) < 0)
        warn("%s: the history was not saved", r->history_path);
    if (r->history)
        history_end(r->history);
    if (r->edit)
        el_end(r->edit);
    free(r->history_path);
}

static line_result read_edited(line_reader *r, const char *prompt, buffer *out)
{
    HistEvent event;
    int n = 0;
    r->prompt = prompt;
    el_set(r->edit, EL_PREP_TERM,
           1); /* before the prompt shows, so that no key is taken the old way */
    const char *line = el_gets(r->edit, &n);
    if (interrupted()) {
        el_reset(r->edit);
        return LINE_INTERRUPTED;
    }
    if (!line || n <= 0)
        return LINE_END;
    if (line[n - 1] == '\n')
        n--;
    text_add(out, line, (size_t)n);
    if (n)
        history(r->history, &event, H_ENTER, out->data);
    return LINE_OK;
}
#endif

/* ---- either ---- */

line_reader *line_open(const char *history_path)
{
    line_reader *r = xmalloc(sizeof *r);
    memset(r, 0, sizeof *r);
    r->interactive = isatty(STDIN_FILENO);
#ifdef BITNET_HAVE_LIBEDIT
    if (r->interactive && isatty(STDOUT_FILENO))
        edit_open(r, history_path);
#else
    (void)history_path;
#endif
    return r;
}

bool line_interactive(const line_reader *r)
{
    return r->interactive;
}

line_result line_read(line_reader *r, const char *prompt, buffer *out)
{
    text_add(out, "", 0);
#ifdef BITNET_HAVE_LIBEDIT
    if (r->edit && r->history)
        return read_edited(r, prompt, out);
#endif
    if (r->interactive)
        out_puts(prompt);
    return read_plain(r, out);
}

void line_close(line_reader *r)
{
    if (!r)
        return;
#ifdef BITNET_HAVE_LIBEDIT
    edit_close(r);
#endif
    free(r);
}
