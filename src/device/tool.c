/* tool.c - runs a vendor's tool with a hard deadline: no shell, its own process group, nothing left
 * behind.
 *
 * posix_spawn instead of fork: the caller may have threads. The group is killed while its leader is
 * still a zombie, so that the number cannot belong to anybody else yet. */
#include "device/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

const char *bnet_tool_text(bnet_tool_result r)
{
    static const char *const text[] = {
        [BNET_TOOL_OK] = "answered",
        [BNET_TOOL_ABSENT] = "is not on the path",
        [BNET_TOOL_FAILED] = "failed",
        [BNET_TOOL_TIMEOUT] = "did not answer before the deadline and was killed",
        [BNET_TOOL_FLOOD] = "printed without end and was killed",
    };
    return text[r];
}

/* Empty elements of the path, which mean the current directory, are skipped on purpose. */
static bool find(const char *path, const char *name, char *out, size_t cap)
{
    if (strchr(name, '/'))
        return false;
    for (const char *p = path; *p;) {
        size_t n = strcspn(p, ":");
        struct stat st;
        int len = snprintf(out, cap, "%.*s/%s", (int)BNET_MIN(n, cap), p, name);
        if (n > 0 && len > 0 && (size_t)len < cap && stat(out, &st) == 0 && S_ISREG(st.st_mode) &&
            access(out, X_OK) == 0)
            return true;
        p += n + (p[n] == ':');
    }
    return false;
}

/* Standard input and error are /dev/null, standard output is the pipe, nothing else is open. The
 * pipe first: its end may have one of the three numbers. */
static int set_files(posix_spawn_file_actions_t *fa, int out)
{
    int e = posix_spawn_file_actions_adddup2(fa, out, STDOUT_FILENO);
    if (!e)
        e = posix_spawn_file_actions_addopen(fa, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!e)
        e = posix_spawn_file_actions_addopen(fa, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
#if defined(__GLIBC__)
#if __GLIBC_PREREQ(2, 34)
    if (!e)
        e = posix_spawn_file_actions_addclosefrom_np(fa, STDERR_FILENO + 1);
#endif
#endif
    return e;
}

/* A fresh process group, no signal blocked, none ignored. */
static int set_signals(posix_spawnattr_t *attr)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int e = posix_spawnattr_setpgroup(attr, 0);
    if (!e)
        e = posix_spawnattr_setsigmask(attr, &none);
    if (!e)
        e = posix_spawnattr_setsigdefault(attr, &all);
    if (!e)
        e = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                               POSIX_SPAWN_SETSIGDEF);
    return e;
}

static bool spawn(const char *file, const char *path, const char *const *argv, int out, pid_t *pid)
{
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    bnet_str env_path = {0};
    bnet_str_addf(&env_path, "PATH=%s", path);
    char locale[] = "LC_ALL=C";
    char *env[] = {env_path.data, locale, NULL};
    int e = env_path.failed ? ENOMEM : posix_spawn_file_actions_init(&fa);
    if (!e) {
        e = posix_spawnattr_init(&attr);
        if (!e) {
            e = set_files(&fa, out);
            if (!e)
                e = set_signals(&attr);
            if (!e)
                e = posix_spawn(pid, file, &fa, &attr, (char *const *)(uintptr_t)argv, env);
            posix_spawnattr_destroy(&attr);
        }
        posix_spawn_file_actions_destroy(&fa);
    }
    bnet_str_free(&env_path);
    return e == 0;
}

/* Reads until the end, the deadline or the limit. */
static bnet_tool_result collect(int fd, double deadline, bnet_str *out)
{
    for (;;) {
        char chunk[2048];
        double left = deadline - bnet_now_ms();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int ready = left > 0 ? poll(&p, 1, (int)left + 1) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return ready == 0 ? BNET_TOOL_TIMEOUT : BNET_TOOL_FAILED;
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n == 0 ? BNET_TOOL_OK : BNET_TOOL_FAILED;
        if (out->n + (size_t)n > BNET_TOOL_MAX_OUTPUT)
            return BNET_TOOL_FLOOD;
        bnet_str_add(out, chunk, (size_t)n);
        if (out->failed)
            return BNET_TOOL_FAILED;
    }
}

/* Waits until the process has ended, leaving it a zombie. False: it still runs. *ours false:
 * somebody else reaped it (SIGCHLD is ignored in this program), so its number means nothing any
 * more. */
static bool await_end(pid_t pid, double deadline, bool *ours)
{
    const struct timespec nap = {0, 1000000};
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0) {
            if (errno == EINTR)
                continue;
            *ours = false;
            return true;
        }
        if (info.si_pid == pid)
            return true;
        if (bnet_now_ms() >= deadline)
            return false;
        nanosleep(&nap, NULL);
    }
}

static bnet_tool_result finish(pid_t pid, double deadline, bnet_tool_result r)
{
    bool ours = true;
    bool ended = await_end(pid, r == BNET_TOOL_OK ? deadline : 0, &ours);
    if (!ended && r == BNET_TOOL_OK)
        r = BNET_TOOL_TIMEOUT;
    if (!ours)
        return r;
    kill(-pid, SIGKILL);
    int status = 0;
    pid_t got;
    do
        got = waitpid(pid, &status, 0);
    while (got < 0 && errno == EINTR);
    if (r == BNET_TOOL_OK && got == pid && !(WIFEXITED(status) && WEXITSTATUS(status) == 0))
        r = BNET_TOOL_FAILED;
    return r;
}

bnet_tool_result bnet_tool_run(const char *path, const char *const *argv, int deadline_ms,
                               bnet_str *out)
{
    char file[4096];
    int fd[2];
    pid_t pid;
    if (!path || !find(path, argv[0], file, sizeof file))
        return BNET_TOOL_ABSENT;
    double deadline = bnet_now_ms() + deadline_ms;
    if (pipe2(fd, O_CLOEXEC) != 0)
        return BNET_TOOL_FAILED;
    bool started = spawn(file, path, argv, fd[1], &pid);
    close(fd[1]);
    bnet_tool_result r = BNET_TOOL_FAILED;
    if (started)
        r = finish(pid, deadline, collect(fd[0], deadline, out));
    close(fd[0]);
    return r;
}
