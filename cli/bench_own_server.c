/* bench_own_server.c - starting and ending the server that `bench --serve` measures. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_server.h"

enum { LINE_BYTES = 512 };

/* The child: becomes the server, whose first line goes into the pipe. */
static void become_server(const word_list *words, const word_list *environment, int out)
{
    static char *const none[] = {NULL};
    if (dup2(out, STDOUT_FILENO) >= 0)
        execve("/proc/self/exe", words->data, environment->data ? environment->data : none);
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
    word_list words = {0}, environment = {0};
    *s = (own_server){0};
    if (pipe2(ends, O_CLOEXEC) != 0)
        return fail(EXIT_OTHER, "bench: no pipe: %s", strerror(errno));
    server_words(a, model, &words);
    server_environment(&environment);
    s->pid = fork();
    if (s->pid == 0)
        become_server(&words, &environment, ends[1]);
    words_free(&words);
    words_free(&environment);
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
