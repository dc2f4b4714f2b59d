/* listen.c - the socket to listen on: an address, a file, or one that a supervisor has opened. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "http/http.h"

enum { BACKLOG = 1024 };

static bitnet_status refuse(bitnet_error *err, bitnet_status status, const char *format, ...)
    BITNET_PRINTF(3, 4);

static bitnet_status refuse(bitnet_error *err, bitnet_status status, const char *format, ...)
{
    va_list ap;
    err->status = status;
    va_start(ap, format);
    vsnprintf(err->message, sizeof err->message, format, ap);
    va_end(ap);
    return status;
}

/* ---- what an address is ---- */

static bool address_is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)a;
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    }
    if (a->sa_family != AF_INET6)
        return false;
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
}

/* "http://127.0.0.1:8080" of a bound socket; "unix:PATH" of a file. */
static void describe(int fd, bool *is_unix, bool *is_loopback, char *address, size_t cap)
{
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof a;
    char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";
    getsockname(fd, (struct sockaddr *)&a, &n);
    *is_unix = a.ss_family == AF_UNIX;
    *is_loopback = *is_unix || address_is_loopback((struct sockaddr *)&a);
    if (*is_unix) {
        snprintf(address, cap, "unix:%s", ((struct sockaddr_un *)&a)->sun_path);
        return;
    }
    getnameinfo((struct sockaddr *)&a, n, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    bool v6 = strchr(host, ':') != NULL;
    snprintf(address, cap, "http://%s%s%s:%s", v6 ? "[" : "", host, v6 ? "]" : "", port);
}

/* ---- opening ---- */

static int open_at(const struct addrinfo *a)
{
    int on = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &on, sizeof on);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static bitnet_status listen_tcp(const srv_config *c, int *fd, bitnet_error *err)
{
    struct addrinfo *found = NULL, want = {.ai_socktype = SOCK_STREAM};
    char port[16];
    want.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    snprintf(port, sizeof port, "%d", c->port);
    int rc = getaddrinfo(c->host, port, &want, &found);
    if (rc)
        return refuse(err, BITNET_IO, "--host %s: %s", c->host, gai_strerror(rc));
    for (const struct addrinfo *a = found; a && *fd < 0; a = a->ai_next)
        *fd = open_at(a);
    int why = errno;
    freeaddrinfo(found);
    if (*fd >= 0)
        return BITNET_OK;
    return refuse(
        err, BITNET_IO, "cannot listen on %s port %d: %s%s", c->host, c->port, strerror(why),
        why == EADDRINUSE ? "; is another server running? --port chooses another one" : "");
}

/* A file that nobody listens on any more is removed. Who listens and does not answer (EAGAIN) keeps
 * his. */
static void remove_stale(const struct sockaddr_un *at)
{
    struct stat st;
    if (lstat(at->sun_path, &st) != 0 || !S_ISSOCK(st.st_mode))
        return;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    if (connect(fd, (const struct sockaddr *)at, sizeof *at) != 0 && errno == ECONNREFUSED)
        unlink(at->sun_path);
    close(fd);
}

/* A socket that listens on this file; -1: it cannot, errno says why, and no file of ours is left. A
 * file that was there before is not ours. */
static int open_file(const struct sockaddr_un *at)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    bool bound = bind(fd, (const struct sockaddr *)at, sizeof *at) == 0;
    if (bound && chmod(at->sun_path, S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP) == 0 &&
        listen(fd, BACKLOG) == 0)
        return fd;
    int why = errno;
    if (bound)
        unlink(at->sun_path);
    close(fd);
    errno = why;
    return -1;
}

static bitnet_status listen_unix(const char *path, int *fd, bitnet_error *err)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof at.sun_path)
        return refuse(err, BITNET_ARGUMENT, "--unix %s: the path is longer than %zu bytes", path,
                      sizeof at.sun_path - 1);
    memcpy(at.sun_path, path, strlen(path) + 1);
    remove_stale(&at);
    *fd = open_file(&at);
    if (*fd >= 0)
        return BITNET_OK;
    return refuse(err, BITNET_IO, "cannot listen on the socket %s: %s", path, strerror(errno));
}

static bitnet_status adopt(int given, int *fd, bitnet_error *err)
{
    int listens = 0;
    socklen_t n = sizeof listens;
    if (getsockopt(given, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) != 0 || !listens)
        return refuse(err, BITNET_IO, "descriptor %d is no socket that listens", given);
    fcntl(given, F_SETFD, FD_CLOEXEC);
    fcntl(given, F_SETFL, fcntl(given, F_GETFL) | O_NONBLOCK);
    *fd = given;
    return BITNET_OK;
}

bitnet_status srv_listen(const srv_config *c, int *fd, bool *is_unix, bool *is_loopback,
                         char *address, size_t cap, bitnet_error *err)
{
    *fd = -1;
    bitnet_status st = c->listen_fd > 0 ? adopt(c->listen_fd, fd, err)
                       : c->unix_path   ? listen_unix(c->unix_path, fd, err)
                                        : listen_tcp(c, fd, err);
    if (st != BITNET_OK)
        return st;
    describe(*fd, is_unix, is_loopback, address, cap);
    if (*is_loopback || c->n_keys || c->allow_open)
        return BITNET_OK;
    srv_unlisten(c, *fd);
    *fd = -1;
    return refuse(
        err, BITNET_ARGUMENT,
        "%s can be reached from other machines, and no API key is set: give --api-key-file "
        "FILE (or BITNET_API_KEY), or --allow-open if everybody may use it",
        address);
}

/* The file goes first: once nobody listens, the next server may put one of its own there. */
void srv_unlisten(const srv_config *c, int fd)
{
    if (c->unix_path && c->listen_fd <= 0)
        unlink(c->unix_path);
    close(fd);
}
