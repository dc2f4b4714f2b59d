/* chat_editor.c - a message changed in the user's own editor. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "chat.h"

extern char **environ;

static const char *editor(void)
{
    const char *visual = getenv("VISUAL"), *plain = getenv("EDITOR");
    if (visual && *visual)
        return visual;
    return plain && *plain ? plain : NULL;
}

bool editor_wanted(void)
{
    return editor() != NULL;
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

/* Ctrl-C in the editor is the editor's. */
static bool run_editor(const char *path)
{
    pid_t pid;
    int status = 0, rc = start(path, &pid);
    if (rc) {
        fail(EXIT_IO, "/edit: cannot start %s: %s", editor(), strerror(rc));
        return false;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (interrupted() == EXIT_INTERRUPTED)
        interrupt_clear();
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
