/* cmd_chat.c - `bitnet chat`: read a message, obey or answer it, until somebody leaves. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "chat.h"
#include "terminal.h"

static const char quotes[] = "\"\"\"";
enum { N_QUOTES = 3 };

/* ---- what is told ---- */

/* In lines of the terminal, where somebody reads it there. */
static char *laid_out(const chat_state *s, size_t indent, const char *text)
{
    wrap w = {.indent = indent};
    buffer lines = {0};
    size_t width = s->interactive && opt_on(s->args, OPT_WRAP) ? terminal_width() : 0;
    wrap_add(&w, width ? width : SIZE_MAX / 2, text, strlen(text), &lines);
    wrap_end(&w, width ? width : SIZE_MAX / 2, &lines);
    wrap_free(&w);
    text_add(&lines, "", 0);
    return lines.data;
}

/* Names and texts out of files do not command the terminal. */
static void disarm(char *text)
{
    for (; *text; text++)
        if (((unsigned char)*text < 0x20 && *text != '\n' && *text != '\t') || *text == 0x7f)
            *text = '?';
}

static char *formatted(const chat_state *s, size_t indent, const char *fmt, va_list ap)
{
    char *text = NULL, *lines = NULL;
    if (vasprintf(&text, fmt, ap) >= 0) {
        disarm(text);
        lines = laid_out(s, indent, text);
        free(text);
    }
    return lines;
}

void chat_note(const chat_state *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *text = formatted(s, 0, fmt, ap);
    va_end(ap);
    if (text)
        note(s->args, "%s%s%s\n", s->styled ? "\033[2m" : "", text, s->styled ? "\033[0m" : "");
    free(text);
}

void chat_say(const chat_state *s, size_t indent, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *text = formatted(s, indent, fmt, ap);
    va_end(ap);
    if (text)
        fprintf(stderr, "%s\n", text);
    free(text);
}

/* ---- a message ---- */

/* "you> ", with what is used of the context once that is 1 % or more. */
static void make_prompt(const chat_state *s, char *buf, size_t cap)
{
    size_t percent = s->n_used * 100 / bitnet_session_context(s->m->session);
    if (opt_json(s->args))
        snprintf(buf, cap, "%s", "");
    else if (percent)
        snprintf(buf, cap, "you (%zu%%)> ", percent);
    else
        snprintf(buf, cap, "you> ");
}

static void drop_return(buffer *line)
{
    if (line->n && line->data[line->n - 1] == '\r')
        line->data[--line->n] = '\0';
}

/* Cuts the closing quotes off, which stand behind `from`, and newlines before them; false: there
 * are none. */
static bool close_block(buffer *text, size_t from)
{
    size_t n = text->n;
    while (n > from && strchr(" \t\n", text->data[n - 1]))
        n--;
    if (n < from + N_QUOTES || memcmp(text->data + n - N_QUOTES, quotes, N_QUOTES) != 0)
        return false;
    n -= N_QUOTES;
    while (n && text->data[n - 1] == '\n')
        n--;
    text->data[text->n = n] = '\0';
    return true;
}

static line_result read_more(chat_state *s, buffer *line)
{
    line_result result = line_read(s->lines, opt_json(s->args) ? "" : "...> ", NULL, line);
    drop_return(line);
    return result;
}

/* The message that `out` opens with quotes, up to those that close it. */
static line_result read_block(chat_state *s, buffer *out)
{
    size_t begin = strspn(out->data, " \t") + N_QUOTES;
    line_result result = LINE_OK;
    memmove(out->data, out->data + begin, out->n - begin + 1);
    out->n -= begin;
    bool closed = close_block(out, 0);
    while (!closed && result == LINE_OK) {
        buffer more = {0};
        result = read_more(s, &more);
        if (result == LINE_OK && out->n)
            text_puts(out, "\n");
        size_t from = out->n;
        if (result == LINE_OK)
            text_add(out, more.data, more.n);
        closed = result == LINE_OK && close_block(out, from);
        free_buffer(&more);
        if (out->n > MESSAGE_BYTES_MAX)
            result = LINE_TOO_LONG;
    }
    return result == LINE_END ? LINE_OK : result;
}

/* The lines that follow while they end with a backslash. */
static line_result read_continued(chat_state *s, buffer *out)
{
    line_result result = LINE_OK;
    while (result == LINE_OK && out->n && out->data[out->n - 1] == '\\') {
        out->data[out->n - 1] = '\n';
        buffer more = {0};
        result = read_more(s, &more);
        text_add(out, more.data, more.n);
        free_buffer(&more);
        if (out->n > MESSAGE_BYTES_MAX)
            result = LINE_TOO_LONG;
    }
    return result == LINE_END ? LINE_OK : result;
}

static line_result read_message(chat_state *s, buffer *out)
{
    char prompt[64];
    make_prompt(s, prompt, sizeof prompt);
    line_result result = line_read(s->lines, prompt, s->given, out);
    free(s->given);
    s->given = NULL;
    if (result != LINE_OK)
        return result;
    drop_return(out);
    bool block = strncmp(out->data + strspn(out->data, " \t"), quotes, N_QUOTES) == 0;
    result = block ? read_block(s, out) : read_continued(s, out);
    if (result == LINE_OK)
        line_remember(s->lines, out->data);
    return result;
}

/* ---- the loop ---- */

static int obey(chat_state *s, const buffer *message, bool *leave)
{
    bool edits = s->edits;
    const char *line = message->data;
    s->edits = false;
    if (strlen(line) != message->n)
        return fail(EXIT_USAGE, "a zero byte is no text: the message is not sent"), EXIT_OK;
    if (line[strspn(line, " \t\n")] == '\0')
        return EXIT_OK;
    if (!s->interactive && !opt_json(s->args))
        out_printf("you> %s\n", line);
    if (is_chat_command(line))
        return chat_command(s, line, leave);
    const char *said = line[0] == '/' && line[1] == '/' ? line + 1 : line;
    return edits ? chat_resend(s, said) : chat_turn(s, said);
}

/* The line of the prompt is over; JSON has none. */
static void leave_line(const chat_state *s)
{
    if (s->interactive && !opt_json(s->args))
        out_puts("\n");
}

/* Ctrl-C at the prompt: one that drops a line asks, as does the first in an empty line; the second
 * in a row there leaves. */
static int prompt_interrupted(chat_state *s, bool dropped, int *n_in_a_row)
{
    int code = interrupted();
    s->edits = false;
    leave_line(s);
    if (dropped)
        *n_in_a_row = 0;
    if (code != EXIT_INTERRUPTED || !s->interactive || ++*n_in_a_row > 1)
        return code;
    interrupt_clear();
    note(s->args, "(Ctrl-C again, Ctrl-D or /exit leaves)\n");
    return EXIT_OK;
}

static int converse(chat_state *s)
{
    int rc = EXIT_OK, n_interrupts = 0;
    bool leave = false;
    while (!rc && !leave && !out_failed()) {
        buffer line = {0};
        switch (read_message(s, &line)) {
        case LINE_OK:
            n_interrupts = 0;
            rc = obey(s, &line, &leave);
            break;
        case LINE_INTERRUPTED:
            rc = prompt_interrupted(s, line.n > 0, &n_interrupts);
            break;
        case LINE_END:
            leave = true;
            leave_line(s);
            break;
        case LINE_FAILED:
            rc = fail(EXIT_IO, "standard input: cannot read");
            break;
        case LINE_TOO_LONG:
            rc = fail(EXIT_USAGE, "standard input: a message of more than %d bytes",
                      MESSAGE_BYTES_MAX);
            break;
        }
        free_buffer(&line);
    }
    return rc;
}

/* ---- the command ---- */

static void set_system(chat_state *s)
{
    buffer t = {0};
    if (!opt_text(s->args, OPT_SYSTEM))
        return;
    text_puts(&t, opt_text(s->args, OPT_SYSTEM));
    if (opt_on(s->args, OPT_ESCAPES))
        unescape(&t);
    s->talk.system = xstrdup(t.data);
    free_buffer(&t);
}

static int prepare(chat_state *s)
{
    if (opt_int(s->args, OPT_MAX_TOKENS) == 0)
        return fail(EXIT_USAGE, "chat: --max-tokens must be at least 1");
    int rc = events_check(s->args);
    s->seed = choose_seed(s->args);
    if (!rc)
        rc = chat_open(s);
    if (!rc)
        rc = receipt_begin(s->m, &s->receipt);
    if (!rc)
        set_system(s);
    return rc;
}

static void release(chat_state *s)
{
    line_close(s->lines);
    conversation_free(&s->talk);
    free_buffer(&s->made);
    free_buffer(&s->shown);
    events_finish(&s->events, NULL);
    wrap_free(&s->wrap);
    free(s->ids.data);
    free(s->given);
    bitnet_receipt_close(s->receipt);
    chat_close(s);
    for (size_t i = 0; i < s->n_kept; i++)
        free(s->kept[i]);
    free(s->kept);
}

static void greet(const chat_state *s)
{
    const char *slash = strrchr(s->m->path, '/');
    chat_note(s, "bitnet %s, %s, seed %llu. /help lists the commands.", bitnet_version(),
              slash ? slash + 1 : s->m->path, (unsigned long long)s->seed);
}

int cmd_chat(args *a)
{
    chat_state s = {.args = a};
    terminal_watch();
    int rc = prepare(&s);
    if (!rc) {
        s.lines = line_open(a);
        s.interactive = line_interactive(s.lines);
        s.styled = s.interactive && terminal_has_style() && opt_int(a, OPT_LOG_FORMAT) == 0;
        if (s.interactive)
            greet(&s);
        rc = converse(&s);
    }
    release(&s);
    return rc;
}
