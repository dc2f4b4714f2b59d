/* self_test.c - --self-test: what the CPU says it can do is tried in a child process, which an
 * illegal instruction may end without harm. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"

enum { AUTO, ON, OFF };                       /* as in options.inc */
enum { CHILD_OK, CHILD_WRONG, CHILD_UNABLE }; /* UNABLE: whoever opens it will say why */

static _Noreturn void child(const char *isa, int out)
{
    static const int fatal[] = {SIGILL, SIGBUS, SIGSEGV, SIGFPE};
    struct rlimit none = {0, 0};
    bitnet_error err = {0};
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        signal(fatal[i], SIG_DFL);
    setrlimit(RLIMIT_CORE, &none);
    bitnet_status st = bitnet_isa_self_test(isa, &err);
    if (st == BITNET_MISMATCH && write(out, err.message, strlen(err.message)) < 0)
        _exit(CHILD_WRONG);
    _exit(st == BITNET_OK ? CHILD_OK : st == BITNET_MISMATCH ? CHILD_WRONG : CHILD_UNABLE);
}

static void read_message(int in, char *buf, size_t cap)
{
    size_t n = 0;
    ssize_t k;
    while (n + 1 < cap && ((k = read(in, buf + n, cap - 1 - n)) > 0 || (k < 0 && errno == EINTR)))
        n += k > 0 ? (size_t)k : 0;
    buf[n] = '\0';
}

/* What became of a child that tried `isa`; why: in words, if it is CHILD_WRONG. Where no child can
 * be made nothing is known, and all is as without the test. */
static int try_isa(const char *isa, char *why, size_t cap)
{
    int ends[2], status = 0;
    if (pipe(ends) != 0)
        return CHILD_OK;
    pid_t pid = fork();
    if (pid == 0)
        child(isa, ends[1]);
    close(ends[1]);
    if (pid > 0)
        read_message(ends[0], why, cap);
    close(ends[0]);
    if (pid < 0)
        return CHILD_OK;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status);
    snprintf(why, cap, "isa '%s': the CPU says it has it, but ended the self-test with: %s",
             isa ? isa : "best", strsignal(WTERMSIG(status)));
    return CHILD_WRONG;
}

/* The highest set that works; scalar needs no test. */
static const char *highest_sound(void)
{
    char why[600];
    int n = 0;
    while (bitnet_isa_at(n))
        n++;
    while (n-- > 1)
        if (try_isa(bitnet_isa_at(n), why, sizeof why) == CHILD_OK)
            return bitnet_isa_at(n);
    return bitnet_isa_at(0);
}

int tested_isa(const args *a, const char **isa)
{
    static const char *lowered; /* once is enough for a process */
    static bool best_is_sound;
    char why[600];
    long mode = opt_int(a, OPT_SELF_TEST);
    if (mode == OFF || (mode == AUTO && !bitnet_cpu_is_virtual()) || (!*isa && best_is_sound))
        return EXIT_OK;
    if (!*isa && lowered) {
        *isa = lowered;
        return EXIT_OK;
    }
    bool sound = try_isa(*isa, why, sizeof why) != CHILD_WRONG;
    if (!*isa)
        best_is_sound = sound;
    if (sound)
        return EXIT_OK;
    if (*isa)
        return fail(EXIT_NOT_AVAILABLE, "%s; choose a lower --isa, or --self-test off", why);
    *isa = lowered = highest_sound();
    warn("%s; using %s", why, lowered);
    return EXIT_OK;
}
