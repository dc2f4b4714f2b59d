/* cmd_chat.c - `bitnet chat`: read a message, obey or answer it, until the user leaves. Here are
 * also what is told at the terminal and a message changed in the user's own editor. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "chat.h"
#include "terminal.h"

extern char **environ;

/* ---- the user's editor ---- */

const char *editor(void)
{
    const char *visual = getenv("VISUAL"), *plain = getenv("EDITOR");
    if (visual && *visual)
        return visual;
    return plain && *plain ? plain : NULL;
}

/* Starts the editor (which may be several words) with the file behind them; the child takes signals
 * as any program. */
static int start(const char *path, pid_t *pid)
{
    static const int ours[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT, SIGPIPE,
                               SIGXFSZ, SIGTSTP, SIGCONT, SIGWINCH};
    posix_spawnattr_t attributes;
    sigset_t plain;
    char *script = xformat("%s \"$1\"", editor());
    char *const argv[] = {"sh", "-c", script, "sh", (char *)(uintptr_t)path, NULL};
    sigemptyset(&plain);
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        sigaddset(&plain, ours[i]);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &plain);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    int rc = posix_spawn(pid, "/bin/sh", NULL, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    free(script);
    return rc;
}

/* Ctrl-C in the editor is the editor's: meanwhile it is ignored here. */
static bool run_editor(const char *path)
{
    pid_t pid;
    int status = 0;
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    sigaction(SIGINT, &ignore, &before);
    int rc = start(path, &pid);
    if (rc) {
        sigaction(SIGINT, &before, NULL);
        fail(EXIT_IO, "/edit: cannot start %s: %s", editor(), strerror(rc));
        return false;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    sigaction(SIGINT, &before, NULL);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    fail(EXIT_OTHER, "/edit: %s failed; nothing is sent", editor());
    return false;
}

static bool write_text(int fd, const buffer *text)
{
    bool ok = write(fd, text->data, text->n) == (ssize_t)text->n && write(fd, "\n", 1) == 1;
    return close(fd) == 0 && ok;
}

bool editor_change(buffer *text)
{
    const char *folder = getenv("TMPDIR");
    char *path = xformat("%s/bitnet-message-XXXXXX", folder && *folder ? folder : "/tmp");
    buffer changed = {0};
    int fd = mkstemp(path);
    bool made = fd >= 0, ok = made && write_text(fd, text);
    if (!ok)
        fail(EXIT_IO, "/edit: %s: %s", path, strerror(errno));
    ok = ok && run_editor(path) && read_input(path, &changed) == EXIT_OK;
    if (made)
        unlink(path);
    free(path);
    while (changed.n && strchr("\r\n", changed.data[changed.n - 1]))
        changed.data[--changed.n] = '\0';
    if (!ok) {
        free_buffer(&changed);
        return false;
    }
    free_buffer(text);
    *text = changed;
    text_add(text, "", 0);
    return true;
}

static const char quotes[] = "\"\"\"";
enum { N_QUOTES = 3 };

/* ---- what is told ---- */

/* In lines as wide as the terminal, if it is one. */
static char *laid_out(const chat_state *s, size_t indent, const char *text)
{
    wrap w = {.indent = indent};
    buffer lines = {0};
    size_t width = s->interactive && opt_on(s->args, OPT_WRAP) ? terminal_width() : 0;
    wrap_all(&w, width ? width : SIZE_MAX / 2, text, &lines);
    return lines.data;
}

static void tell(const chat_state *s, size_t indent, bool notice, const char *fmt, va_list ap)
{
    char *text = NULL;
    if (vasprintf(&text, fmt, ap) < 0)
        return;
    buffer shown = {0};
    text_visible(&shown, text, strlen(text), true); /* names and texts out of files */
    char *lines = laid_out(s, indent, shown.data);
    bool dim = notice && s->styled && !opt_on(s->args, OPT_QUIET);
    if (dim)
        tell_stderr("\033[2m", 4);
    if (notice)
        note(s->args, "%s\n", lines);
    else
        fprintf(stderr, "%s\n", lines);
    if (dim)
        tell_stderr("\033[0m", 4);
    free(lines);
    free_buffer(&shown);
    free(text);
}

void chat_note(const chat_state *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    tell(s, 0, true, fmt, ap);
    va_end(ap);
}

void chat_say(const chat_state *s, size_t indent, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    tell(s, indent, false, fmt, ap);
    va_end(ap);
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

/* The rest of a message: a block lasts up to the quotes that close it, another message while its
 * lines end with a backslash. */
static line_result read_rest(chat_state *s, bool block, buffer *out)
{
    line_result result = LINE_OK;
    size_t from = 0;
    while (result == LINE_OK &&
           (block ? !close_block(out, from) : out->n && out->data[out->n - 1] == '\\')) {
        buffer more = {0};
        result = line_read(s->lines, opt_json(s->args) ? "" : "...> ", NULL, &more);
        drop_return(&more);
        if (!block)
            out->data[out->n - 1] = '\n';
        else if (result == LINE_OK && out->n)
            text_puts(out, "\n");
        from = out->n;
        if (result == LINE_OK)
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
    size_t begin = strspn(out->data, " \t");
    bool block = strncmp(out->data + begin, quotes, N_QUOTES) == 0;
    if (block) {
        begin += N_QUOTES;
        memmove(out->data, out->data + begin, out->n - begin + 1);
        out->n -= begin;
    }
    result = read_rest(s, block, out);
    if (result == LINE_OK)
        line_remember(s->lines, out->data);
    return result;
}

/* ---- the loop ---- */

static int obey(chat_state *s, const buffer *message)
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
        return chat_command(s, line);
    const char *said = line[0] == '/' && line[1] == '/' ? line + 1 : line;
    return edits ? chat_resend(s, said) : chat_turn(s, said);
}

/* The line of the prompt is over; JSON has none. */
static void leave_line(const chat_state *s)
{
    if (s->interactive && !opt_json(s->args))
        out_puts("\n");
}

int chat_interrupted(const chat_state *s)
{
    int code = interrupted();
    if (code != EXIT_INTERRUPTED || !s->interactive)
        return code;
    interrupt_clear();
    return EXIT_OK;
}

/* Ctrl-C at the prompt: one that drops a line asks, as does the first in an empty line; the second
 * in a row there leaves. */
static int prompt_interrupted(chat_state *s, bool dropped, int *n_in_a_row)
{
    s->edits = false;
    leave_line(s);
    *n_in_a_row = dropped ? 1 : *n_in_a_row + 1;
    int rc = *n_in_a_row > 1 ? interrupted() : chat_interrupted(s);
    if (!rc)
        note(s->args, "(Ctrl-C again, Ctrl-D or /exit leaves)\n");
    return rc;
}

static int converse(chat_state *s)
{
    int rc = EXIT_OK, n_interrupts = 0;
    while (!rc && !s->leaves && !out_failed()) {
        buffer line = {0};
        switch (read_message(s, &line)) {
        case LINE_OK:
            n_interrupts = 0;
            rc = obey(s, &line);
            break;
        case LINE_INTERRUPTED:
            rc = prompt_interrupted(s, line.n > 0, &n_interrupts);
            break;
        case LINE_END:
            s->leaves = true;
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

static int prepare(chat_state *s)
{
    const char *system = opt_text(s->args, OPT_SYSTEM);
    if (opt_int(s->args, OPT_MAX_TOKENS) == 0)
        return fail(EXIT_USAGE, "chat: --max-tokens must be at least 1");
    int rc = events_check(s->args);
    s->seed = choose_seed(s->args);
    rc = rc ? rc : chat_open(s);
    rc = rc ? rc : receipt_begin(s->m, &s->receipt);
    s->talk.system = system ? unescaped(s->args, system) : NULL;
    return rc;
}

static void release(chat_state *s)
{
    line_close(s->lines);
    conversation_free(&s->talk);
    free_buffer(&s->made);
    free_buffer(&s->all_made);
    free_buffer(&s->shown);
    events_finish(&s->events, NULL);
    wrap_free(&s->wrap);
    free(s->ids.data);
    free(s->all_ids.data);
    free(s->given);
    bitnet_receipt_close(s->receipt);
    chat_close(s);
}

int cmd_chat(args *a)
{
    chat_state s = {.args = a};
    terminal_watch();
    int rc = prepare(&s);
    if (!rc) {
        s.interactive = isatty(STDIN_FILENO);
        s.lines = line_open(a, &s.edits_lines);
        s.styled = s.interactive && terminal_has_style() && opt_int(a, OPT_LOG_FORMAT) == 0;
        if (s.interactive)
            chat_note(&s, "bitnet %s, %s, seed %llu. /help lists the commands.", bitnet_version(),
                      file_name(s.m->path), (unsigned long long)s.seed);
        rc = converse(&s);
    }
    release(&s);
    return rc;
}
