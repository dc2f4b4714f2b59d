/* bench_own_server.c - starting and ending the server that `bench --serve` measures. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_server.h"

enum { WORDS_MAX = 24, LINE_BYTES = 512 };

/* Options of bench that the server has, too. */
static void add_option(const args *a, option_key key, const char *name, const char **words,
                       size_t *n)
{
    if (opt_given(a, key) && opt_text(a, key)) {
        words[(*n)++] = name;
        words[(*n)++] = opt_text(a, key);
    }
}

/* The child: becomes the server, whose first line goes into the pipe. */
static void become_server(const args *a, const char *model, int out)
{
    const char *words[WORDS_MAX] = {"bitnet",  "serve", "--model",   model,
                                    "--port",  "0",     "--quiet",   "--no-log-requests",
                                    "--cache", "off",   "--timeout", "0"};
    size_t n = 12;
    add_option(a, OPT_BENCH_THREADS, "--threads", words, &n);
    add_option(a, OPT_DEVICE, "--device", words, &n);
    add_option(a, OPT_KV, "--kv", words, &n);
    add_option(a, OPT_ISA, "--isa", words, &n);
    add_option(a, OPT_PIN, "--pin", words, &n);
    words[n] = NULL;
    if (dup2(out, STDOUT_FILENO) >= 0)
        execv("/proc/self/exe", (char *const *)(uintptr_t)words);
    _exit(EXIT_OTHER);
}

/* Reads until the address is there. */
static int read_address(int fd, traffic_server *at)
{
    char line[LINE_BYTES];
    size_t n = 0;
    for (ssize_t k = 1; n + 1 < sizeof line && !memchr(line, '\n', n);) {
        k = read(fd, line + n, sizeof line - 1 - n);
        if (k < 0 && errno == EINTR && !interrupted())
            continue;
        if (k <= 0)
            return interrupted() ? interrupted()
                                 : fail(EXIT_OTHER, "bench: the server did not start");
        n += (size_t)k;
    }
    line[n] = '\0';
    char *url = strstr(line, "http://");
    if (!url)
        return fail(EXIT_OTHER, "bench: the server named no address");
    url[strcspn(url, " \r\n")] = '\0';
    return traffic_parse(url, at);
}

int own_server_start(const args *a, const char *model, own_server *s)
{
    int ends[2];
    *s = (own_server){0};
    if (pipe2(ends, O_CLOEXEC) != 0)
        return fail(EXIT_OTHER, "bench: no pipe: %s", strerror(errno));
    s->pid = fork();
    if (s->pid == 0)
        become_server(a, model, ends[1]);
    close(ends[1]);
    int rc = s->pid < 0 ? fail(EXIT_OTHER, "bench: no process: %s", strerror(errno))
                        : read_address(ends[0], &s->at);
    close(ends[0]);
    if (rc)
        own_server_stop(s);
    return rc;
}

void own_server_stop(own_server *s)
{
    if (s->pid > 0) {
        kill(s->pid, SIGTERM);
        while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    s->pid = 0;
}
