/* crowd.c - other programs that want the same CPUs: processes that do nothing but count, not tied
 * to any CPU. They are started before this process has threads, stopped and continued to make a
 * load, and end with this process, however it ends. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

static void count_forever(pid_t parent)
{
    static volatile unsigned counter;
    signal(SIGINT, SIG_IGN); /* Ctrl-C is for the parent, which then ends this */
    signal(SIGTERM, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_OTHER);
    raise(SIGSTOP);
    for (;;)
        counter++;
}

static pid_t wait_for(pid_t pid, int *how, int flags)
{
    pid_t found;
    do
        found = waitpid(pid, how, flags);
    while (found < 0 && errno == EINTR);
    return found;
}

int crowd_open(crowd *c, int n)
{
    pid_t parent = getpid();
    *c = (crowd){.pids = xmalloc((size_t)n * sizeof *c->pids)};
    while (c->n < n) {
        int how = 0;
        pid_t pid = fork();
        if (pid == 0)
            count_forever(parent);
        if (pid < 0)
            return fail(EXIT_OTHER, "--crowded: cannot start busy process %d of %d: %s", c->n + 1,
                        n, strerror(errno));
        c->pids[c->n++] = pid;
        if (wait_for(pid, &how, WUNTRACED) != pid || !WIFSTOPPED(how))
            return fail(EXIT_OTHER, "--crowded: a busy process ended at once");
    }
    return EXIT_OK;
}

void crowd_load(const crowd *c, int n_busy)
{
    for (int i = 0; i < c->n; i++)
        kill(c->pids[i], i < n_busy ? SIGCONT : SIGSTOP);
}

void crowd_close(crowd *c)
{
    for (int i = 0; i < c->n; i++)
        kill(c->pids[i], SIGKILL);
    for (int i = 0; i < c->n; i++)
        wait_for(c->pids[i], NULL, 0);
    free(c->pids);
    *c = (crowd){0};
}
