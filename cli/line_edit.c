/* line_edit.c - a line edited with libedit. Hides what libedit leaves to the program: pasted text
 * is put into the line as it is, newlines and all, and sends nothing; Ctrl-C ends the line and not
 * the program; Ctrl-Z gives the terminal back in order; a resized terminal is drawn anew; Tab
 * completes.
 */
#include "chat.h"

#ifdef BITNET_HAVE_LIBEDIT

#include <errno.h>
#include <histedit.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "terminal.h"

#define PASTE_BEGIN "\033[200~" /* how the terminal marks what is pasted */
#define PASTE_END   "\033[201~"

struct line_edit {
    EditLine *edit;
    History *history;
    const char *prompt;
    const char *given; /* to be put into the line before the first key; NULL: done */
    bool marks_pastes;
    char *drawn;        /* the line, when it was last drawn as a whole; NULL: never */
    size_t drawn_width; /* columns the terminal had then */
    char block[4096];   /* read ahead: [at, n) is still to come */
    size_t at, n;
};

static line_edit *self(EditLine *edit)
{
    line_edit *e = NULL;
    el_get(edit, EL_CLIENTDATA, &e);
    return e;
}

static char *prompt_of(EditLine *edit)
{
    return (char *)(uintptr_t)self(edit)->prompt;
}

/* ---- the terminal ---- */

static void mark_pastes(const line_edit *e, bool on)
{
    if (e->marks_pastes)
        terminal_mark_pastes(on);
}

/* Where a text ends in a terminal that has changed its width: it lays rows out anew that ran on
 * into the next one, and leaves those broken that were ended. */
typedef struct layout {
    size_t row;                /* of ended rows, as they lie now */
    size_t columns, n_blanks;  /* since the last end; of these, blanks at the end */
    size_t drawn, drawn_width; /* columns since a row began when it was drawn, and where it ended */
} layout;

static void end_row(layout *l, size_t width, size_t columns)
{
    l->row += columns ? (columns + width - 1) / width : 1;
    l->columns = l->n_blanks = l->drawn = 0;
}

/* libedit ends a row whose last column is blank, and lets others run on. */
static void lay_out(layout *l, size_t width, const char *s, size_t n)
{
    for (size_t i = 0, len; i < n; i += len) {
        size_t columns = terminal_columns(s + i, n - i, &len);
        bool full = l->drawn + columns > l->drawn_width;
        if (s[i] == '\n') {
            end_row(l, width, l->columns);
            continue;
        }
        if (full && l->n_blanks)
            end_row(l, width, l->columns - l->n_blanks);
        l->drawn = (full ? 0 : l->drawn) + columns;
        l->columns += columns;
        l->n_blanks = s[i] == ' ' ? l->n_blanks + 1 : 0;
    }
}

/* Is what stands there the line as it was drawn as a whole? What is typed runs on in every row. */
static bool stands_drawn(const line_edit *e, const LineInfo *line)
{
    size_t n = (size_t)(line->lastchar - line->buffer);
    return e->drawn && strlen(e->drawn) == n && memcmp(e->drawn, line->buffer, n) == 0;
}

/* Rows below the first one in which the cursor stands, now that the terminal has this width. */
static size_t cursor_row(const line_edit *e, size_t width)
{
    const LineInfo *line = el_line(e->edit);
    layout l = {.drawn_width = stands_drawn(e, line) ? e->drawn_width : SIZE_MAX};
    lay_out(&l, width, e->prompt, strlen(e->prompt));
    lay_out(&l, width, line->buffer, (size_t)(line->cursor - line->buffer));
    return l.row + l.columns / width;
}

/* The line is drawn as a whole. */
static void remember_drawn(line_edit *e)
{
    const LineInfo *line = el_line(e->edit);
    free(e->drawn);
    e->drawn = xmemdup(line->buffer, (size_t)(line->lastchar - line->buffer));
    e->drawn_width = terminal_width();
}

static void draw(line_edit *e)
{
    el_resize(e->edit);
    el_set(e->edit, EL_REFRESH);
    remember_drawn(e);
}

/* The terminal has moved what stood in it to its new width; the line is drawn over it. */
static void redraw(line_edit *e)
{
    size_t row = cursor_row(e, terminal_width());
    char up[32] = "";
    if (row)
        snprintf(up, sizeof up, "\033[%zuA", row);
    out_command("\r");
    out_command(up);
    out_command("\033[J");
    draw(e);
}

/* After a stop: the shell has written below, and the terminal is as the shell left it. */
static void resume(line_edit *e)
{
    el_set(e->edit, EL_PREP_TERM, 0);
    el_set(e->edit, EL_PREP_TERM, 1);
    mark_pastes(e, true);
    out_command("\r\033[K");
    draw(e);
}

static void stop(line_edit *e)
{
    mark_pastes(e, false);
    el_set(e->edit, EL_PREP_TERM, 0);
    terminal_stop();
    resume(e);
}

/* Waits until a byte can be read, doing meanwhile what the terminal asks for. False: Ctrl-C. */
static bool wait_for_key(line_edit *e)
{
    for (;;) {
        switch (terminal_wait()) {
        case TERMINAL_INPUT:
            return true;
        case TERMINAL_INTERRUPTED:
            return false;
        case TERMINAL_RESIZED:
            redraw(e);
            break;
        case TERMINAL_STOP:
            stop(e);
            break;
        case TERMINAL_CONTINUED:
            resume(e);
            break;
        }
    }
}

/* 1: a byte; 0: the end; -1: Ctrl-C or an error. */
static int read_byte(line_edit *e, char *c)
{
    while (e->at == e->n) {
        if (!wait_for_key(e))
            return -1;
        ssize_t k = read(STDIN_FILENO, e->block, sizeof e->block);
        if (k == 0 || (k < 0 && errno != EINTR))
            return (int)k;
        e->at = 0;
        e->n = k > 0 ? (size_t)k : 0;
    }
    *c = e->block[e->at++];
    return 1;
}

/* What libedit calls for a key. */
static int read_key(EditLine *edit, wchar_t *out)
{
    line_edit *e = self(edit);
    mbstate_t state;
    memset(&state, 0, sizeof state);
    if (e->given) {
        el_insertstr(edit, e->given);
        e->given = NULL;
        out_command("\r"); /* the prompt stands there alone, and is drawn again */
        draw(e);
    }
    for (;;) {
        char c;
        int k = read_byte(e, &c);
        if (k <= 0)
            return k;
        size_t n = mbrtowc(out, &c, 1, &state);
        if (n == (size_t)-2)
            continue;
        if (n == (size_t)-1)
            *out = L'?';
        return 1;
    }
}

/* ---- pasted text ---- */

/* Everything up to the mark of the end; false: Ctrl-C. */
static bool read_paste(line_edit *e, buffer *out)
{
    size_t n_mark = strlen(PASTE_END);
    char c;
    text_add(out, "", 0);
    while (read_byte(e, &c) == 1) {
        text_add(out, &c, 1);
        if (out->n >= n_mark && memcmp(out->data + out->n - n_mark, PASTE_END, n_mark) == 0) {
            out->data[out->n -= n_mark] = '\0';
            return true;
        }
    }
    return false;
}

/* Newlines as this program has them, none at the end; no other control characters. */
static void clean_paste(buffer *t)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++) {
        unsigned char c = (unsigned char)t->data[i];
        if (c == '\r' && i + 1 < t->n && t->data[i + 1] == '\n')
            continue;
        if (c == '\r')
            c = '\n';
        if (c == '\n' || c == '\t' || (c >= 0x20 && c != 0x7f))
            t->data[n++] = (char)c;
    }
    while (n && t->data[n - 1] == '\n')
        n--;
    t->data[t->n = n] = '\0';
}

static unsigned char on_paste(EditLine *edit, int key)
{
    buffer pasted = {0};
    (void)key;
    bool whole = read_paste(self(edit), &pasted);
    clean_paste(&pasted);
    if (whole && pasted.n && el_insertstr(edit, pasted.data) != 0)
        whole = false;
    free_buffer(&pasted);
    remember_drawn(self(edit));
    return whole ? CC_REFRESH : CC_ERROR;
}

/* ---- Tab ---- */

/* As many to a line as fit. */
static void list_words(const completion *c)
{
    size_t width = terminal_width(), column = 0;
    out_puts("\n");
    for (size_t i = 0; i < c->n; i++) {
        const char *word = c->words[i] + c->n_hidden;
        size_t n = strlen(word);
        bool breaks = column && column + 2 + n > width;
        out_printf("%s%s", breaks ? "\n" : column ? "  " : "", word);
        column = (breaks || !column ? 0 : column + 2) + n;
    }
    out_puts("\n");
}

static unsigned char on_tab(EditLine *edit, int key)
{
    const LineInfo *line = el_line(edit);
    completion c;
    unsigned char result = CC_ERROR;
    (void)key;
    complete_line(line->buffer, (size_t)(line->cursor - line->buffer), &c);
    size_t shared = complete_shared(&c);
    bool whole = c.n == 1 && c.spaced;
    if (shared > c.n_typed || whole) {
        char *more =
            xformat("%.*s%s", (int)(shared - c.n_typed), c.words[0] + c.n_typed, whole ? " " : "");
        result = el_insertstr(edit, more) == 0 ? CC_REFRESH : CC_ERROR;
        free(more);
    } else if (c.n > 1) {
        list_words(&c);
        result = CC_REDISPLAY;
    }
    complete_free(&c);
    return result;
}

/* ---- the line ---- */

/* Names in wide characters: libedit keeps the others in copies that it never frees. */
static void bind_keys(EditLine *edit)
{
    el_wset(edit, EL_ADDFN, L"bitnet-paste", L"put pasted text into the line", on_paste);
    el_wset(edit, EL_ADDFN, L"bitnet-complete", L"complete a command or its argument", on_tab);
    el_set(edit, EL_BIND, PASTE_BEGIN, "bitnet-paste", NULL);
    el_set(edit, EL_BIND, "\t", "bitnet-complete", NULL);
}

line_edit *line_edit_open(void)
{
    enum { REMEMBERED = 1000 };
    HistEvent event;
    const char *term = getenv("TERM");
    line_edit *e = xmalloc(sizeof *e);
    memset(e, 0, sizeof *e);
    e->marks_pastes = term && strcmp(term, "dumb") != 0;
    e->edit = el_init("bitnet", stdin, stdout, stderr);
    e->history = history_init();
    if (!e->edit || !e->history) {
        line_edit_close(e);
        return NULL;
    }
    history(e->history, &event, H_SETSIZE, REMEMBERED);
    history(e->history, &event, H_SETUNIQUE, 1);
    el_set(e->edit, EL_CLIENTDATA, e);
    el_set(e->edit, EL_PROMPT, prompt_of);
    el_set(e->edit, EL_EDITOR, "emacs");
    el_set(e->edit, EL_HIST, history, e->history);
    el_set(e->edit, EL_GETCFN, read_key);
    el_set(e->edit, EL_SETTY, "-d", "-inlcr", "-icrnl",
           NULL); /* pasted newlines come as they are */
    el_source(e->edit, NULL);
    bind_keys(e->edit);
    return e;
}

void line_edit_close(line_edit *e)
{
    if (!e)
        return;
    if (e->history)
        history_end(e->history);
    if (e->edit)
        el_end(e->edit);
    mark_pastes(e, false);
    free(e->drawn);
    free(e);
}

void line_edit_remember(line_edit *e, const char *entry)
{
    HistEvent event;
    history(e->history, &event, H_ENTER, entry);
}

line_result line_edit_read(line_edit *e, const char *prompt, const char *given, buffer *out)
{
    int n = 0;
    e->prompt = prompt;
    e->given = given && *given ? given : NULL;
    free(e->drawn);
    e->drawn = NULL;
    terminal_catch_stop(true);
    el_resize(e->edit);
    mark_pastes(e, true);             /* an editor or a shell may have been there since */
    el_set(e->edit, EL_PREP_TERM, 1); /* before the prompt shows: no key is taken the old way */
    const char *line = el_gets(e->edit, &n);
    terminal_catch_stop(false);
    e->given = NULL;
    if (interrupted()) {
        const LineInfo *left = el_line(e->edit);
        text_add(out, left->buffer, (size_t)(left->lastchar - left->buffer));
        el_reset(e->edit);
        return LINE_INTERRUPTED;
    }
    if (!line || n <= 0)
        return LINE_END;
    if (line[n - 1] == '\n')
        n--;
    text_add(out, line, (size_t)n);
    progress_pause();
    progress_resume(false); /* whatever was drawn, Enter has ended the line */
    return LINE_OK;
}

#else

line_edit *line_edit_open(void)
{
    return NULL;
}

void line_edit_close(line_edit *e)
{
    (void)e;
}

void line_edit_remember(line_edit *e, const char *entry)
{
    (void)e, (void)entry;
}

line_result line_edit_read(line_edit *e, const char *prompt, const char *given, buffer *out)
{
    (void)e, (void)prompt, (void)given, (void)out;
    return LINE_FAILED;
}

#endif
