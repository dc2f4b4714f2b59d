/* terminal.c - signals of the terminal turned into events, and widths. Handlers only set flags;
 * whoever draws asks for them when it can draw. */
#include "terminal.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

static volatile sig_atomic_t was_resized, was_stopped, was_continued, was_left;

static void on_signal(int sig)
{
    if (sig == SIGWINCH)
        was_resized = 1;
    else if (sig == SIGTSTP)
        was_stopped = 1;
    else
        was_continued = was_left = 1;
}

void terminal_watch(void)
{
    signals_handle(SIGWINCH, on_signal, SA_RESTART); /* a reply is not disturbed by them */
    signals_handle(SIGCONT, on_signal, SA_RESTART);
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
}

/* ---- events ---- */

static bool take(volatile sig_atomic_t *flag)
{
    bool was = *flag != 0;
    *flag = 0;
    return was;
}

/* The next thing that has happened; TERMINAL_INPUT: nothing. */
static terminal_event happened(void)
{
    if (interrupted())
        return TERMINAL_INTERRUPTED;
    if (take(&was_stopped))
        return TERMINAL_STOP;
    if (take(&was_continued))
        return TERMINAL_CONTINUED;
    return take(&was_resized) ? TERMINAL_RESIZED : TERMINAL_INPUT;
}

/* Signals are held between the look at the flags and the wait: one that comes there is not missed.
 */
terminal_event terminal_wait(void)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    sigset_t before;
    terminal_event event;
    int k = 0;
    sigprocmask(SIG_BLOCK, NULL, &before);
    signals_hold(true);
    while ((event = happened()) == TERMINAL_INPUT && k == 0) {
        k = ppoll(&p, 1, NULL, &before);
        if (k < 0 && errno == EINTR)
            k = 0;
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return event;
}

static volatile sig_atomic_t is_edited; /* a line is being edited; before, it was `plain` */
static struct termios plain;

void terminal_catch_stop(bool on)
{
    was_resized = was_stopped = was_continued = 0; /* before, nothing was drawn */
    signals_handle_unless_ignored(SIGTSTP, on ? on_signal : SIG_DFL, SA_RESTART);
    is_edited = on && tcgetattr(STDIN_FILENO, &plain) == 0;
}

void terminal_stop(void)
{
    terminal_catch_stop(false);
    raise(SIGTSTP);
    terminal_catch_stop(true);
}

bool terminal_was_left(void)
{
    return take(&was_left);
}

/* ---- without echo ---- */

static volatile sig_atomic_t is_quiet;
static struct termios loud, quiet;

static volatile sig_atomic_t marks_pastes;

static void ask_for_marks(bool on)
{
    const char *request = on ? "\033[?2004h" : "\033[?2004l";
    if (write(STDOUT_FILENO, request, strlen(request)) < 0)
        return; /* a terminal that is gone marks nothing */
}

void terminal_mark_pastes(bool on)
{
    marks_pastes = on;
    ask_for_marks(on);
}

/* Another program's terminal is left alone. */
void terminal_restore(void)
{
    bool ours = (is_edited || is_quiet) && tcgetpgrp(STDIN_FILENO) == getpgrp();
    if (ours && marks_pastes)
        ask_for_marks(false);
    if (ours)
        tcsetattr(STDIN_FILENO, TCSANOW, is_edited ? &plain : &loud);
}

/* Stops as the terminal asks, with its echo on while others use it. Calls here are safe in a
 * handler. */
static void on_stop_while_quiet(int sig)
{
    int kept = errno;
    sigset_t this_one;
    terminal_restore();
    sigemptyset(&this_one);
    sigaddset(&this_one, sig);
    signals_handle(sig, SIG_DFL, SA_RESTART);
    raise(sig);
    sigprocmask(SIG_UNBLOCK, &this_one, NULL); /* it stops here */
    signals_handle(sig, on_stop_while_quiet, SA_RESTART);
    tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
    if (marks_pastes)
        ask_for_marks(true);
    errno = kept;
}

void terminal_quiet(bool on)
{
    if (on == (is_quiet != 0))
        return;
    if (on && tcgetattr(STDIN_FILENO, &loud) != 0)
        return;
    if (on) {
        quiet = loud;
        quiet.c_lflag &= ~(tcflag_t)(ECHO | ECHONL);
        quiet.c_lflag |= NOFLSH; /* Ctrl-C stops the reply and leaves those keys alone */
    }
    signals_handle_unless_ignored(SIGTSTP, on ? on_stop_while_quiet : SIG_DFL, SA_RESTART);
    is_quiet = on;
    tcsetattr(STDIN_FILENO, TCSANOW, on ? &quiet : &loud);
}

/* ---- widths ---- */

size_t terminal_width(void)
{
    struct winsize size;
    if (!isatty(STDOUT_FILENO))
        return 0;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return 80;
    return size.ws_col;
}

size_t terminal_columns(const char *s, size_t n, size_t *len)
{
    wchar_t c;
    mbstate_t state;
    memset(&state, 0, sizeof state);
    size_t k = mbrtowc(&c, s, n, &state);
    *len = 1;
    if (k == 0 || k > n) /* NUL, or not a character: shown as something narrow */
        return 1;
    *len = k;
    int columns = wcwidth(c);
    return columns < 0 ? 0 : (size_t)columns;
}

bool terminal_has_style(void)
{
    const char *term = getenv("TERM"), *forbids = getenv("NO_COLOR");
    return tty_stderr() && term && strcmp(term, "dumb") != 0 && !(forbids && *forbids);
}

enum { TAB = 8 };

void wrap_begin(wrap *w, size_t column)
{
    w->word.n = w->word_column = w->n_spaces = 0;
    w->column = column;
}

void wrap_free(wrap *w)
{
    free_buffer(&w->word);
}

static void break_line(wrap *w, buffer *out)
{
    text_puts(out, "\n");
    w->column = w->n_spaces = 0;
}

static void put_spaces(wrap *w, size_t width, buffer *out)
{
    for (; w->n_spaces && w->column < width; w->n_spaces--, w->column++)
        text_puts(out, " ");
    w->n_spaces = 0;
}

static void put_word(wrap *w, size_t width, buffer *out)
{
    if (w->word.n == 0)
        return;
    if (w->column && w->column + w->n_spaces + w->word_column > width) {
        break_line(w, out);
        w->n_spaces = w->indent + w->word_column <= width ? w->indent : 0;
    }
    put_spaces(w, width, out);
    text_add(out, w->word.data, w->word.n);
    w->column += w->word_column;
    w->word.n = w->word_column = 0;
}

static void put_tab(wrap *w, size_t width, buffer *out)
{
    put_spaces(w, width, out);
    text_puts(out, "\t");
    w->column += TAB - w->column % TAB;
}

static void put_character(wrap *w, size_t width, const char *s, size_t len, size_t columns,
                          buffer *out)
{
    bool wide = columns > 1;
    if (wide || w->word_column + columns > width)
        put_word(w, width, out);
    text_add(&w->word, s, len);
    w->word_column += columns;
    if (wide && w->word_column == columns)
        put_word(w, width, out);
}

/* Adds to out what of the bytes (whole characters) can be shown on lines of `width` columns: all
 * but a last word that may continue. */
static void wrap_add(wrap *w, size_t width, const char *bytes, size_t n, buffer *out)
{
    for (size_t i = 0, len; i < n; i += len) {
        size_t columns = terminal_columns(bytes + i, n - i, &len);
        char c = bytes[i];
        if (c != ' ' && c != '\n' && c != '\t') {
            put_character(w, width, bytes + i, len, columns, out);
            continue;
        }
        put_word(w, width, out);
        if (c == ' ')
            w->n_spaces++;
        else if (c == '\t')
            put_tab(w, width, out);
        else
            break_line(w, out);
    }
}

static void wrap_end(wrap *w, size_t width, buffer *out)
{
    put_word(w, width, out);
    put_spaces(w, width, out);
}

void wrap_all(wrap *w, size_t width, const char *text, buffer *out)
{
    wrap_add(w, width, text, strlen(text), out);
    wrap_end(w, width, out);
    text_add(out, "", 0);
    wrap_free(w);
}

bool wrap_write(wrap *w, bool on, const char *bytes, size_t n, bool last)
{
    size_t width = on ? terminal_width() : 0;
    buffer lines = {0}, shown = {0};
    if (width == 0)
        return out_write(bytes, n);
    if (terminal_was_left()) /* on a line of its own again */
        w->column = w->n_spaces = 0;
    text_visible(&shown, bytes, n, true); /* escapes have a width, too */
    wrap_add(w, width, shown.data, shown.n, &lines);
    free_buffer(&shown);
    if (last)
        wrap_end(w, width, &lines);
    return out_buffer(&lines);
}
